"""Code of users with conversations, for strict pyright and strict mypy. It is checked and never run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, FunctionToolset, RunContext
from pydantic_ai.messages import ImageUrl, ModelMessage

from pydantic_deep import Approve, DeepAgentDeps, Model, VersionedAgent, create_deep_agent, open_store
from pydantic_deep.fluent import Conversation, MessageList, PromptBuilder, ToolExchange, prompt


class Answer(BaseModel):
    text: str


def lookup(ctx: RunContext[DeepAgentDeps], name: str) -> str:
    return name


def plain(name: str) -> str:
    return name


async def conversations() -> None:
    agent = create_deep_agent(Model.CLAUDE_OPUS)
    builder = prompt(agent)
    assert_type(builder, PromptBuilder[DeepAgentDeps, Conversation[DeepAgentDeps, str]])
    started = (
        builder.instructions('Be brief.')
        .assistant('I am ready.')
        .user(['What is this?', ImageUrl(url='https://example.com/a.png')])
        .tools(lookup, plain, FunctionToolset[DeepAgentDeps]())
        .model(Model.GPT)
        .settings(temperature=0, max_tokens=100)
        .start()
    )
    assert_type(started, Conversation[DeepAgentDeps, str])
    async with started as conversation:
        async for message in conversation:
            assert_type(message, ModelMessage)
        async for text in conversation.continuation.user('Why?').start().text_stream():
            assert_type(text, str)
    assert_type(conversation.output, str | None)
    assert_type(await conversation.continuation.user('Why?').prompt(), str)
    assert_type(await conversation.resume({each.id: Approve() for each in conversation.pending}), str)
    assert_type(conversation.messages.exchanges(), list[ToolExchange])
    assert_type(conversation.branch(), Conversation[DeepAgentDeps, str])
    builder.settings(temperatur=0)  # type: ignore[call-arg]
    builder.user(3)  # type: ignore[arg-type]


async def types_are_those_of_the_agent() -> None:
    typed = Agent('test', output_type=Answer, deps_type=int)
    assert_type(await prompt(typed, deps=7).user('a').prompt(), Answer)
    prompt(typed, deps='seven')  # type: ignore[misc]
    gated = create_deep_agent('test', interrupt_on={'write_file': True})
    assert_type(await prompt(gated).user('a').prompt(), str | DeferredToolRequests)
    assert_type(prompt('test'), PromptBuilder[DeepAgentDeps, Conversation[DeepAgentDeps, str]])
    async with open_store('memory:') as store:
        assert_type(await prompt(VersionedAgent(typed, store)).user('a').prompt(), Answer)
        assert_type(Conversation(agent=typed, store=store, conversation_id='a'), Conversation[int, Answer])


async def transcripts(conversation: Conversation[DeepAgentDeps, str]) -> None:
    conversation.messages.save('a.json')
    messages = MessageList.load(Path('a.json'))
    assert_type(messages[0], ModelMessage)
    assert_type(messages[1:], list[ModelMessage])
    assert_type(Conversation(messages), Conversation[DeepAgentDeps, str])
    assert_type(MessageList.from_dict(messages.to_dict(inline_media=False), media=messages.media()), MessageList)
