"""How do I keep a long conversation cheap without losing information from it?"""

from __future__ import annotations

from pydantic_ai import Conversation
from pydantic_ai.messages import CompactionPart, ToolReturnPart
from pydantic_ai.models import Model

from pydantic_deep import DeepAgentDeps, Summarization, create_deep_agent, usage_report
from pydantic_deep.summarization import Messages

PROMPTS = [
    'I am Ada, and I move to Graz on 3 March.',
    'The lease of the flat has the number L-77.',
    'Which way do I send my books?',
    'And the piano?',
    'Which number has the lease?',
]


async def main(model: Model | str) -> None:
    # The default limit is 20,000 tokens of history. This low one shows a summary after four turns.
    summarization = Summarization(trigger=Messages(8), keep=Messages(2))
    agent = create_deep_agent(model, capabilities=[summarization])
    deps, conversation = DeepAgentDeps(), Conversation()
    for prompt in PROMPTS:
        result = await agent.run(prompt, conversation=conversation, deps=deps)
        print(result.output)
        conversation = result.conversation
    for message in conversation.messages:
        for part in message.parts:
            if isinstance(part, CompactionPart):
                print(part.content)
            elif isinstance(part, ToolReturnPart):
                print(f'{part.tool_name}: {part.content}')
    report = await usage_report(conversation)
    print(f'The next request sends {report.summary} tokens of summary and {report.history} of history.')


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
