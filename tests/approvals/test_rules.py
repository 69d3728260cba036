"""Effects of approval rules on calls of an agent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import pytest
from pydantic import Field
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._text.simple_command import MAX_LINE_CHARS
from pydantic_deep.approvals import ApprovalRule, Approve, Deny, Edit, Preview, Respond

pytestmark = pytest.mark.anyio

DeskType = Callable[..., Any]
Previews = Callable[..., Any]

ran: list[object] = []


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


def save(path: str | list[str], content: str = '') -> str:
    ran.append(path)
    return 'saved'


def execute(command: str | list[str]) -> str:
    ran.append(command)
    return 'ok'


def saving(path: object) -> ToolCallPart:
    return ToolCallPart('save', {'path': path}, tool_call_id='c')


def running(command: object) -> ToolCallPart:
    return ToolCallPart('execute', {'command': command}, tool_call_id='c')


async def test_true_always_asks_and_false_never_does(desk: DeskType) -> None:
    asked = await desk(running('ls'), tools=[execute], interrupt_on={'execute': True}).start()
    assert (asked.ids, ran) == (['c'], [])
    unasked = await desk(running('ls'), tools=[execute], interrupt_on={'execute': False}).start()
    assert (unasked.ids, ran) == ([], ['ls'])


@pytest.mark.parametrize(('command', 'asks'), [('ls', False), ('rm x', True)])
async def test_predicate_on_the_arguments_decides(desk: DeskType, command: str, asks: bool) -> None:
    rule = ApprovalRule(when=lambda args: str(args['command']).startswith('rm'))
    seen = await desk(running(command), tools=[execute], interrupt_on={'execute': rule}).start()
    assert bool(seen.ids) == asks
    assert ran == ([] if asks else [command])


async def test_failing_predicate_asks_and_is_logged(desk: DeskType, caplog: pytest.LogCaptureFixture) -> None:
    rule = ApprovalRule(when=lambda args: bool(args['no such argument']))
    with caplog.at_level(logging.WARNING, 'pydantic_deep'):
        seen = await desk(running('ls'), tools=[execute], interrupt_on={'execute': rule}).start()
    assert seen.ids == ['c']
    assert [record.message for record in caplog.records] == [
        "The predicate of the approval rule for 'execute' failed, so a person is asked"
    ]


async def test_predicate_cannot_change_the_arguments(desk: DeskType) -> None:
    def when(args: Mapping[str, Any]) -> bool:
        args.update(command='rm x')  # type: ignore[attr-defined]
        return False

    await desk(running('ls'), tools=[execute], interrupt_on={'execute': ApprovalRule(when=when)}).start()
    assert ran == ['ls']


@pytest.mark.parametrize(
    ('command', 'asks'),
    [('git status -s', False), ('git push', True), ('git status; ls', True), (['git', 'status'], False)],
)
async def test_allowed_command_runs_without_asking(desk: DeskType, command: object, asks: bool) -> None:
    rule = ApprovalRule(allow=['git status *'])
    seen = await desk(running(command), tools=[execute], interrupt_on={'execute': rule}).start()
    assert bool(seen.ids) == asks


@pytest.mark.parametrize(
    ('path', 'asks'),
    [('/src/a.py', False), ('/etc/a', True), (['/src/a', '/src/b'], False), (['/src/a', '/etc/b'], True)],
)
async def test_allow_patterns_must_cover_all_files(
    desk: DeskType, fake_previews: Previews, path: object, asks: bool
) -> None:
    rule = ApprovalRule(allow=['/src/**'])
    seen = await desk(
        saving(path), tools=[save], interrupt_on={'save': rule}, capabilities=lambda: [fake_previews({})]
    ).start()
    assert bool(seen.ids) == asks


async def test_file_tool_without_a_preview_is_not_allowed_by_path(desk: DeskType) -> None:
    seen = await desk(saving('/src/a'), tools=[save], interrupt_on={'save': ApprovalRule(allow=['**'])}).start()
    assert seen.ids == ['c']


async def test_denied_command_fails_with_an_explanation(desk: DeskType) -> None:
    rule = ApprovalRule(allow=['*'], deny=['rm *'])
    seen = await desk(running('ls; rm x'), tools=[execute], interrupt_on={'execute': rule}).start()
    assert ran == []
    assert seen.results == {
        'c': ('failed', "The rule 'rm *' denies this command. It was not run. Continue without it.")
    }


async def test_denied_path_fails_with_an_explanation(desk: DeskType, fake_previews: Previews) -> None:
    rule = ApprovalRule(allow=['**'], deny=['.env', '*.key'])
    seen = await desk(
        saving(['/a', '/x/.env']), tools=[save], interrupt_on={'save': rule}, capabilities=lambda: [fake_previews({})]
    ).start()
    assert ran == []
    assert seen.results == {
        'c': ('failed', "The rule '.env' denies '/x/.env'. It was not touched. Continue without it.")
    }


@pytest.mark.parametrize('decision', [Approve(), Edit({'command': 'rm y'})])
async def test_approval_does_not_override_a_deny_rule(desk: DeskType, decision: Any) -> None:
    command = 'ls' if isinstance(decision, Edit) else 'rm x'
    strict: dict[str, Any] = {}
    seen = await desk(running(command), tools=[execute], interrupt_on=strict | {'execute': True}).start()
    seen._interrupt_on = {'execute': ApprovalRule(deny=['rm *'])}  # the rule was added while the call was pending
    await seen.answer(decision)
    assert ran == []
    assert seen.results['c'][0] == 'failed'
    assert "The rule 'rm *' denies this command" in str(seen.results['c'][1])
    assert 'It ran' not in str(seen.results['c'][1])


async def test_response_to_a_denied_call_is_delivered(desk: DeskType) -> None:
    seen = await desk(running('rm x'), tools=[execute], interrupt_on={'execute': True}).start()
    seen._interrupt_on = {'execute': ApprovalRule(deny=['rm *'])}
    assert (await seen.answer(Respond('no need'))).results == {'c': ('success', 'no need')}


async def test_patterns_that_cannot_be_applied_ask(desk: DeskType) -> None:
    rule = ApprovalRule(when=lambda args: False, deny=['/etc/**'])
    seen = await desk(saving('/etc/x'), tools=[save], interrupt_on={'save': rule}).start()
    assert seen.ids == ['c']
    assert ran == []


@pytest.mark.parametrize('line', ['x' * MAX_LINE_CHARS + ' y', 'eval ' * 200 + 'x; rm y'])
async def test_line_too_long_or_complex_to_search_asks(desk: DeskType, line: str) -> None:
    rule = ApprovalRule(when=lambda args: False, deny=['rm *'])
    seen = await desk(running(line), tools=[execute], interrupt_on={'execute': rule}).start()
    assert (seen.ids, ran) == (['c'], [])


async def test_only_the_decisions_of_the_rule_are_offered(desk: DeskType) -> None:
    rule = ApprovalRule(decisions=('approve', 'deny'))
    seen = await desk(running('ls'), tools=[execute], interrupt_on={'execute': rule}).start()
    assert [each.decisions for each in seen.pending] == [('approve', 'deny')]
    assert (await seen.answer(Deny('not now'))).results == {'c': ('denied', 'not now')}


@pytest.mark.parametrize('lists', [{'deny': ('a[', '*.key'), 'allow': ('**',)}, {'allow': ('**', 'a[')}])
async def test_pattern_found_invalid_during_a_call_asks_and_is_logged(
    desk: DeskType, fake_previews: Previews, caplog: pytest.LogCaptureFixture, lists: dict[str, Any]
) -> None:
    rule = ApprovalRule(when=lambda args: False, **lists)
    with caplog.at_level(logging.WARNING, 'pydantic_deep'):
        seen = await desk(
            saving('/x'), tools=[save], interrupt_on={'save': rule}, capabilities=lambda: [fake_previews({})]
        ).start()
    assert (seen.ids, ran) == (['c'], [])
    (said,) = {record.message for record in caplog.records}
    assert said.startswith(
        "A pattern of the approval rule for 'save' fails, so a person is asked: 'a[' is not a valid pattern: "
    )


async def test_malformed_pattern_does_not_disable_other_deny_patterns(desk: DeskType, fake_previews: Previews) -> None:
    rule = ApprovalRule(deny=('a[', '*.key'))
    seen = await desk(
        saving('/x.key'), tools=[save], interrupt_on={'save': rule}, capabilities=lambda: [fake_previews({})]
    ).start()
    assert seen.results['c'][0] == 'failed'


async def test_pattern_that_is_not_a_glob_is_used_for_commands(desk: DeskType) -> None:
    rule = ApprovalRule(allow=('[ -f *',))
    seen = await desk(running('ls'), tools=[execute], interrupt_on={'execute': rule}).start()
    assert seen.ids == ['c']


async def test_a_preview_identifies_a_tool_that_runs_a_command(desk: DeskType) -> None:
    class Shell(AbstractCapability[object]):
        async def preview(self, ctx: object, *, call: object, tool_def: object, args: dict[str, Any]) -> Preview:
            return Preview(kind='command', text=f'sh {args["script"]}')

    def script(script: str) -> str:
        ran.append(script)
        return 'ok'

    rule = ApprovalRule(allow=['sh build.sh'])
    responses = [
        ToolCallPart('script', {'script': 'build.sh'}, tool_call_id='a'),
        ToolCallPart('script', {'script': 'other.sh'}, tool_call_id='b'),
    ]
    seen = await desk(responses, tools=[script], interrupt_on={'script': rule}, capabilities=lambda: [Shell()]).start()
    assert (seen.ids, ran) == (['b'], ['build.sh'])
    assert seen.pending[0].preview == Preview(kind='command', text='sh other.sh')


@pytest.mark.parametrize(('rule', 'runs'), [({'allow': ['view *', '/src/**']}, True), ({'allow': ['view *']}, False)])
async def test_tool_with_a_command_and_files_needs_both_allowed(
    desk: DeskType, fake_previews: Previews, rule: dict[str, Any], runs: bool
) -> None:
    def edit(command: str, path: str) -> str:
        return 'done'

    seen = await desk(
        ToolCallPart('edit', {'command': 'view it', 'path': '/src/a'}, tool_call_id='c'),
        tools=[edit],
        interrupt_on={'edit': ApprovalRule(**rule)},
        capabilities=lambda: [fake_previews({})],
    ).start()
    assert (seen.ids == []) is runs


async def test_tool_with_a_command_and_files_is_denied_by_path(desk: DeskType, fake_previews: Previews) -> None:
    def edit(command: str, path: str) -> str:
        raise AssertionError

    seen = await desk(
        ToolCallPart('edit', {'command': 'create', 'path': '/secret/a'}, tool_call_id='c'),
        tools=[edit],
        interrupt_on={'edit': ApprovalRule(deny=['/secret/**'])},
        capabilities=lambda: [fake_previews({})],
    ).start()
    assert seen.results['c'][0] == 'failed'


def never(args: Mapping[str, Any]) -> bool:
    return False


def run_command(
    command: str | list[object],
    env: dict[str, str] | None = None,
    cwd: str = '/',
    tries: int = 1,
    timeout_seconds: float = 10,
    note: str = '',
) -> str:
    ran.append(command)
    return 'ok'


@pytest.mark.parametrize('rule', [{'allow': ['git status']}, {'allow': ['git status'], 'when': never}])
@pytest.mark.parametrize(
    ('more', 'asks'),
    [
        ({}, False),
        ({'env': {'LD_PRELOAD': '/tmp/x.so'}}, True),
        ({'env': {}}, True),
        ({'env': None}, False),
        ({'cwd': '/elsewhere'}, True),
        ({'cwd': '/'}, False),
        ({'tries': True}, False),  # validation converts it to the declared 1
        ({'tries': 2}, True),
        ({'note': 'why'}, True),
        ({'timeout_seconds': 3}, False),
    ],
)
async def test_argument_unknown_to_a_command_rule_asks(
    desk: DeskType, rule: dict[str, Any], more: dict[str, object], asks: bool
) -> None:
    """With command patterns, a call with an argument unknown to the rule asks, regardless of the rest of the rule."""
    call = ToolCallPart('run_command', {'command': 'git status', **more}, tool_call_id='c')
    seen = await desk(call, tools=[run_command], interrupt_on={'run_command': ApprovalRule(**rule)}).start()
    assert (bool(seen.ids), bool(ran)) == (asks, not asks)


@pytest.mark.parametrize(('value', 'asks'), [(True, True), (1.0, True), ('1', True), (1, False)])
async def test_default_is_compared_with_its_type(desk: DeskType, value: object, asks: bool) -> None:
    """JSON's `true` and `1.0` are not the default `1`, although they are equal in Python."""

    def anything(command: str, level: object = 1) -> str:
        return 'ok'

    call = ToolCallPart('anything', {'command': 'git status', 'level': value}, tool_call_id='c')
    rule = ApprovalRule(allow=['git status'])
    seen = await desk(call, tools=[anything], interrupt_on={'anything': rule}).start()
    assert bool(seen.ids) is asks


async def test_unknown_arguments_ask_if_commands_are_only_denied(desk: DeskType) -> None:
    """A rule that only denies commands cannot judge an environment, so the call asks although `when` returns false."""
    call = ToolCallPart('run_command', {'command': 'ls', 'env': {'A': 'b'}}, tool_call_id='c')
    rule = ApprovalRule(deny=['rm *'], when=lambda args: False)
    seen = await desk(call, tools=[run_command], interrupt_on={'run_command': rule}).start()
    assert seen.ids == ['c']


async def test_known_arguments_may_have_any_value(desk: DeskType) -> None:
    """An argument in `known_arguments` does not make a call ask; others still do."""
    rule = ApprovalRule(allow=['git status'], known_arguments=['note'])
    calls = [
        ToolCallPart('run_command', {'command': 'git status', 'note': 'why'}, tool_call_id='a'),
        ToolCallPart('run_command', {'command': 'git status', 'note': 'why', 'cwd': '/tmp'}, tool_call_id='b'),
    ]
    seen = await desk(calls, tools=[run_command], interrupt_on={'run_command': rule}).start()
    assert (seen.ids, ran) == (['b'], ['git status'])


async def test_command_with_words_that_are_not_text_asks(desk: DeskType) -> None:
    """Patterns do not match a command with words that are not text, because its rendering is unknown."""
    call = ToolCallPart('run_command', {'command': ['git', True]}, tool_call_id='c')
    rule = ApprovalRule(allow=['git True'])
    seen = await desk(call, tools=[run_command], interrupt_on={'run_command': rule}).start()
    assert seen.ids == ['c']


async def test_argument_under_an_alias_asks(desk: DeskType) -> None:
    """A value passed under an alias is unknown to the rule."""

    def aliased(command: str, where: Annotated[str, Field(alias='in')] = '/') -> str:
        raise AssertionError

    call = ToolCallPart('aliased', {'command': 'git status', 'in': '/tmp'}, tool_call_id='c')
    seen = await desk(call, tools=[aliased], interrupt_on={'aliased': ApprovalRule(allow=['git status'])}).start()
    assert seen.ids == ['c']


async def test_arguments_missing_from_a_previewed_command_ask(desk: DeskType) -> None:
    """If a capability previews the command, an argument that is not a word of the command requires approval."""

    class Shell(AbstractCapability[object]):
        async def preview(self, ctx: object, *, call: object, tool_def: object, args: dict[str, Any]) -> Preview:
            return Preview(kind='command', text=f'sh {args["script"]}')

    def script(script: str, env: dict[str, str] | None = None, cwd: str = '.') -> str:
        ran.append(script)
        return 'ok'

    calls = [
        ToolCallPart('script', {'script': 'build.sh'}, tool_call_id='a'),
        ToolCallPart('script', {'script': 'build.sh', 'env': {'PATH': '/tmp'}}, tool_call_id='b'),
        ToolCallPart('script', {'script': 'build.sh', 'cwd': '/tmp'}, tool_call_id='c'),
    ]
    rule = ApprovalRule(allow=['sh build.sh'])
    seen = await desk(calls, tools=[script], interrupt_on={'script': rule}, capabilities=lambda: [Shell()]).start()
    assert (seen.ids, ran) == (['b', 'c'], ['build.sh'])
