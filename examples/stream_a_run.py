"""How do I stream a run to a browser while it happens?"""

from __future__ import annotations

from pydantic_ai.models import Model

from pydantic_deep import DeepAgentDeps, StateBackend, create_deep_agent
from pydantic_deep.streaming import (
    STREAM_EVENTS,
    EndEvent,
    FileEvent,
    FrameReader,
    TextEvent,
    ToolCallEvent,
    stream_agent,
)


async def main(model: Model | str) -> None:
    agent = create_deep_agent(model, name='clerk')
    deps = DeepAgentDeps(backend=StateBackend({'/prices.csv': 'cake,3\ntea,2\n'}))

    # A server: server-sent events as the lines of text to send.
    stream = stream_agent(agent, 'Write a menu from prices.csv.', deps=deps, max_iterations=20, session_id='tab-1')
    async with stream:
        sent = [line async for line in stream.iter_lines(function_calls=True)]

    # A client: splits bytes into frames, regardless of chunk boundaries, and parses frames into events.
    reader = FrameReader()
    texts: list[str] = []
    for frame in reader.feed(''.join(sent).encode()):
        match STREAM_EVENTS.validate_json(frame.data):
            case TextEvent(text=text):
                texts.append(text)
            case ToolCallEvent(name=name, args=args):
                print(frame.event, name, args)
            case EndEvent(status=status):
                print(frame.event, status)
            case FileEvent(path=path):
                print(frame.event, path)
            case _:
                print(frame.event)
    print(''.join(texts))


if __name__ == '__main__':
    import sys

    import anyio

    anyio.run(main, sys.argv[1] if len(sys.argv) > 1 else 'anthropic:claude-opus-5-5')
