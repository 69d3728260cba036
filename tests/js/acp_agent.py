"""The agent of `pydantic-deep acp` with a scripted model, for the test of the client `acpx`.

The first word of a prompt determines what it does: see `answer`.
"""

from __future__ import annotations

import sys

import anyio
from pydantic_ai.messages import ModelMessage, ModelRequest, TextContent, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep.cli import main
from pydantic_deep.testing import Answer, ScriptedModel, call


async def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Perform the action that the prompt names, then answer with its result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    results = [part.model_response_str() for part in last.parts if isinstance(part, ToolReturnPart)]
    if results:
        return f'Done: {results[-1]}'
    prompts = [part.content for part in last.parts if isinstance(part, UserPromptPart)]
    texts = [prompt if isinstance(prompt, str) else str(text_of(prompt[0])) for prompt in prompts]
    word, _, rest = texts[-1].partition(' ')
    match word:
        case 'write':
            return call('write_file', path='a.txt', content=rest)
        case 'read':
            return call('read_file', path='a.txt')
        case 'run':
            return call('execute', command=rest)
        case 'wait':
            await anyio.sleep_forever()
            raise AssertionError
        case _:
            return f'You said: {texts[-1]}, after {len(messages) - 1} messages.'


def text_of(content: object) -> object:
    return content.content if isinstance(content, TextContent) else content


if __name__ == '__main__':
    sys.exit(main(['acp', '--model', 'given', *sys.argv[1:]], models={'given': ScriptedModel(*[answer] * 100)}))
