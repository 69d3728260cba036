"""Large prompts are stored in a file. The model gets their head and tail, in every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import (
    BinaryContent,
    CachePoint,
    ModelMessage,
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    StructuredContent,
    TextContent,
    TextPart,
    UserPromptPart,
)

from pydantic_deep import Approve, DeepAgentDeps, LocalBackend, answer_approvals, create_deep_agent
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.store import Commit, Committed, SqlStore, StoreUnavailableError, open_engine, open_store
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import VersionedAgent
from pydantic_deep_backends import StateBackend

pytestmark = pytest.mark.anyio

LARGE = ''.join(f'row {number:05}\n' for number in range(10_000))
NOTICE = '[97,000 of 100,000 characters left out. All are in /offload/prompt: use read_file or grep on it]'
SHORT = f'{LARGE[:2_000]}\n{NOTICE}\n{LARGE[-1_000:]}'
IMAGE = BinaryContent(b'\x89PNG', media_type='image/png')


def make_agent(model: ScriptedModel, **options: Any) -> Agent[object, str]:
    return Agent(model, capabilities=[Filesystem(backend=StateBackend())], **options)


def prompts(messages: list[ModelMessage]) -> list[object]:
    """Return the user prompts of the messages."""
    return [part.content for message in messages for part in message.parts if isinstance(part, UserPromptPart)]


async def test_large_prompt_is_shortened_and_can_be_paged_and_searched() -> None:
    model = ScriptedModel(
        call('read_file', path='/offload/prompt', offset=9_999),
        call('grep', path='/offload', pattern='row 0500.'),
        'done',
    )

    result = await make_agent(model).run(LARGE)

    page, found = (str(part.content) for part in model.requests[-1].tool_returns)
    assert [prompts(request.messages) for request in model.requests] == [[SHORT]] * 3
    assert prompts(result.all_messages()) == [SHORT]
    assert page == '9999→row 09998\n10000→row 09999'
    assert found.split('\n')[:2] == ['/offload/prompt', '5001: row 05000']


@pytest.mark.parametrize(('chars', 'is_whole'), [(5_000, True), (5_001, False)])
async def test_prompt_at_the_limit_is_not_shortened(chars: int, is_whole: bool) -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Filesystem(backend=StateBackend(), offload_chars=5_000)]).run('x' * chars)
    assert (prompts(model.requests[0].messages) == ['x' * chars]) is is_whole


async def test_long_texts_of_a_list_are_shortened_individually() -> None:
    structured, tagged = StructuredContent([1], content=LARGE), TextContent('short', metadata=1)
    items = ['look', LARGE, IMAGE, TextContent(LARGE[::-1], metadata=2), tagged, structured, CachePoint()]
    model = ScriptedModel('done')

    await make_agent(model).run(items)

    (sent,) = prompts(model.requests[0].messages)
    assert isinstance(sent, list)
    assert sent[:3] == ['look', SHORT, IMAGE]
    assert isinstance(sent[3], TextContent)
    assert '/offload/prompt-2:' in sent[3].content
    assert sent[3].metadata == 2
    assert sent[4:] == items[4:]
    assert items[1] == LARGE


async def test_list_of_short_items_is_the_same_object() -> None:
    items = ['look', TextContent('short'), IMAGE]
    result = await make_agent(ScriptedModel('done')).run(items)
    assert prompts(result.all_messages())[0] is items


async def test_message_history_is_not_shortened() -> None:
    history: list[ModelMessage] = [ModelRequest([UserPromptPart(LARGE)]), ModelResponse([TextPart('ok')])]
    before = ModelMessagesTypeAdapter.dump_json(history)
    model = ScriptedModel('done')

    await make_agent(model).run('go on', message_history=history)

    assert prompts(model.requests[0].messages) == [LARGE, 'go on']
    assert ModelMessagesTypeAdapter.dump_json(history) == before


@pytest.mark.parametrize('prompt', ['go on', None])
async def test_unanswered_prompt_of_the_history_is_not_shortened(prompt: str | None) -> None:
    history: list[ModelMessage] = [ModelRequest([UserPromptPart(LARGE)])]
    model = ScriptedModel('done')

    await make_agent(model).run(prompt, message_history=history)

    assert prompts(model.requests[0].messages) == [LARGE, *([prompt] if prompt else [])]
    assert prompts(history) == [LARGE]


async def test_resumed_response_has_no_new_prompt() -> None:
    suspended = ModelResponse([TextPart('so far')], state='suspended')
    model = ScriptedModel('done')

    result = await make_agent(model).run(message_history=[ModelRequest([UserPromptPart(LARGE)]), suspended])

    assert prompts(result.all_messages()) == [LARGE]


async def test_equal_large_prompts_are_stored_once_and_others_separately() -> None:
    deps = DeepAgentDeps()
    model = ScriptedModel('a', 'b', 'c')
    agent = create_deep_agent(model)
    history: list[ModelMessage] = []
    for text in (LARGE, LARGE, LARGE + 'end'):
        history = (await agent.run(text, deps=deps, message_history=history)).all_messages()

    shown = [str(content) for content in prompts(history)]
    assert [text[2_000:].split('in ')[1].split(':')[0] for text in shown] == [
        '/offload/prompt',
        '/offload/prompt',
        '/offload/prompt-2',
    ]
    assert shown[0] == prompts(model.requests[2].messages)[0]


async def test_the_users_directory_stays_clean(tmp_path: Path) -> None:
    deps = DeepAgentDeps(backend=LocalBackend(tmp_path))
    await create_deep_agent(ScriptedModel('done')).run(LARGE, deps=deps)
    assert list(tmp_path.iterdir()) == []


async def test_prompt_is_not_shortened_if_disabled() -> None:
    model = ScriptedModel('done')
    await Agent(model, capabilities=[Filesystem(backend=StateBackend(), offload_chars=None)]).run(LARGE)
    assert prompts(model.requests[0].messages) == [LARGE]


async def test_user_content_of_a_tool_return_is_not_shortened() -> None:
    def look() -> ToolReturn[str]:
        return ToolReturn(return_value='seen', content=LARGE)

    model = ScriptedModel(call('look'), 'done')
    await make_agent(model, tools=[look]).run('go')
    assert prompts(model.requests[-1].messages) == ['go', LARGE]


async def test_lone_surrogate_in_a_prompt_is_escaped() -> None:
    model = ScriptedModel('done')
    result = await make_agent(model).run('\ud800' + LARGE)
    assert str(prompts(model.requests[0].messages)[0]).startswith('\\ud800row 00000')
    assert ModelMessagesTypeAdapter.dump_json(result.all_messages())


async def test_streamed_run_sends_the_shortened_prompt() -> None:
    model = ScriptedModel('done')
    async with make_agent(model).run_stream(LARGE) as stream:
        assert await stream.get_output() == 'done'
    assert prompts(model.requests[0].messages) == [SHORT]


async def test_a_resumed_run_continues_with_the_sent_messages() -> None:
    model = ScriptedModel(call('write_file', path='/a', content='x'), 'done')
    agent = create_deep_agent(model, interrupt_on={'write_file': True})
    deps = DeepAgentDeps()
    paused = await agent.run(LARGE, deps=deps)
    waiting: Any = paused.output
    answers = answer_approvals(waiting, {request.tool_call_id: Approve() for request in waiting.approvals})

    await agent.run(LARGE[1:], deps=deps, message_history=paused.all_messages(), deferred_tool_results=answers)

    first, second = map(str, prompts(model.requests[-1].messages))
    assert first == SHORT
    assert '/offload/prompt-2:' in second


class Copies(AbstractCapability[Any]):
    """Sends copies of the messages."""

    async def before_model_request(self, ctx: Any, request_context: Any) -> Any:
        dumped = ModelMessagesTypeAdapter.dump_json(list(request_context.messages))
        request_context.messages = ModelMessagesTypeAdapter.validate_json(dumped)
        return request_context


async def test_copied_messages_are_shortened_with_the_history() -> None:
    model = ScriptedModel(call('ls'), 'done')
    agent = Agent(model, capabilities=[Copies(), Filesystem(backend=StateBackend())])

    result = await agent.run(LARGE)

    assert [prompts(request.messages) for request in model.requests] == [[SHORT]] * 2
    assert prompts(result.all_messages()) == [SHORT]


async def test_version_has_the_short_prompt_and_stores_the_whole_text() -> None:
    model = ScriptedModel(call('ls'), 'done', call('read_file', path='/offload/prompt', offset=10_000), 'done')
    async with open_store('memory:') as store:
        version = await (await VersionedAgent(create_deep_agent(model), store).create()).advance(LARGE)
        step = (await version.steps())[0]
        again = await VersionedAgent(create_deep_agent(model), store).load(version.id)
        after = await again.advance('go on')

        assert prompts(await version.messages()) == [SHORT]
        assert prompts(await step.messages()) == [SHORT]
        assert await version.replay()
        assert await after.replay()
    (page,) = (part.content for part in model.requests[-1].tool_returns if part.tool_name == 'read_file')
    assert page == '10000→row 09999'


class MortalStore(SqlStore):
    """A store of a process that crashes before the first commit of a version of the given kind."""

    dies_before = ''
    is_dead = False

    async def commit(self, commit: Commit) -> Committed:
        self.is_dead |= any(version.kind == self.dies_before for version in commit.versions)
        if self.is_dead:
            raise StoreUnavailableError('The process is dead.')
        return await super().commit(commit)


@pytest.mark.parametrize('kind', ['step', 'turn'])
async def test_recovered_version_has_the_short_prompt_once(tmp_path: Path, kind: str) -> None:
    url = f'sqlite:///{tmp_path}/agents.db'
    model = ScriptedModel(then=lambda messages, info: call('ls') if len(messages) == 1 else 'done')
    async with MortalStore(await open_engine(url)) as store:
        store.dies_before = kind
        root = await VersionedAgent(create_deep_agent(model), store).create()
        with pytest.raises(StoreUnavailableError):
            await root.advance(LARGE)
        assert store.is_dead

    async with open_store(url) as store:
        (version,) = await VersionedAgent(create_deep_agent(model), store).recover()

        assert version.output == 'done'
        assert prompts(await version.messages()) == [SHORT]
        assert prompts(model.requests[-1].messages) == [SHORT]
