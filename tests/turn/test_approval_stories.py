"""End-to-end approvals: trees of agents, other processes, and people and programs that try to bypass them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias, cast

import pytest
from pydantic_ai import (
    Agent,
    AgentRunResult,
    ApprovalRequired,
    Conversation,
    ConversationTypeAdapter,
    DeferredToolResults,
    FunctionToolset,
    RunContext,
    Tool,
    capture_run_messages,
)
from pydantic_ai.capabilities import PrefixTools
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.run import AgentRunResultEvent
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset
from pydantic_ai.usage import UsageLimits

from pydantic_deep import (
    ApprovalRule,
    Approve,
    BackendSkills,
    DeepAgentDeps,
    Deny,
    Edit,
    Filesystem,
    LocalBackend,
    PendingApproval,
    Respond,
    Skill,
    StateBackend,
    Subagent,
    answer_approvals,
    create_deep_agent,
    pending_approvals,
)
from pydantic_deep.approvals import MalformedApprovalError, UnknownApprovalError
from pydantic_deep.testing import Answer, ScriptedModel, call

pytestmark = pytest.mark.anyio

Decision: TypeAlias = Approve | Edit | Deny | Respond

PLACES = ('root', 'north', 'north/worker', 'north/worker/helper', 'south', 'south/worker', 'south/worker/helper')
PROGRAM = Path(__file__).parent / 'three_levels_program.py'


def run_in_a_process(directory: Path, decisions: Mapping[str, Sequence[object]] | None = None) -> dict[str, Any]:
    """Run the tree of agents once, in a separate process."""
    (directory / 'decisions.json').write_text(json.dumps(decisions))
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(directory)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    return cast('dict[str, Any]', json.loads(done.stdout))


def lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != 'linux', reason='commands run on Linux only')
def test_three_levels_are_answered_in_other_processes_without_duplicates(tmp_path: Path) -> None:
    work = tmp_path / 'work'
    work.mkdir()
    (work / 'plan.md').write_text('draft\n')
    (work / 'report.md').write_text('old\n')
    under = str(work.resolve())

    said = run_in_a_process(tmp_path)
    assert sorted(lines(tmp_path / 'ran.txt')) == sorted(f'note {place}' for place in PLACES)
    assert sorted(lines(tmp_path / 'asked.txt')) == sorted(f'{place} 0' for place in PLACES)
    assert said['requests'] == len(PLACES)
    command = 'echo execute north/worker >> ../ran.txt'
    edit = {'path': 'plan.md', 'old_string': 'draft', 'new_string': 'final'}
    edit_diff = f'--- a{under}/plan.md\n+++ b{under}/plan.md\n@@ -1 +1 @@\n-draft\n+final'
    write_diff = f'--- a{under}/report.md\n+++ b{under}/report.md\n@@ -1 +1 @@\n-old\n+new'
    assert [tuple(each.values()) for each in said['waiting']] == [
        ('c0/c1', ['north'], 'send', {'text': 'north'}, None),
        ('c0/c2/c0', ['north', 'worker'], 'execute', {'command': command}, command),
        ('c0/c2/c2/c0', ['north', 'worker', 'helper'], 'send', {'text': 'north/worker/helper'}, None),
        ('c0/c3', ['north'], 'edit_file', edit, edit_diff),
        ('c1', [], 'send', {'text': 'root'}, None),
        ('c3/c0/c0', ['south', 'worker'], 'send', {'text': 'south/worker'}, None),
        ('c3/c0/c1/c1', ['south', 'worker', 'helper'], 'send', {'text': 'south/worker/helper'}, None),
        ('c3/c2', ['south'], 'send', {'text': 'south'}, None),
        ('c4', [], 'write_file', {'path': 'report.md', 'content': 'new\n'}, write_diff),
    ]

    before = said['waiting']
    answers = {'c0/c1': ['approve'], 'c0/c2/c2/c0': ['deny', 'not now'], 'c3/c0/c0': ['edit', {'text': 'edited'}]}
    said = run_in_a_process(tmp_path, answers)
    key = {each['id']: each for each in before if each['id'] not in answers}
    assert {each['id']: each for each in said['waiting']} == key
    assert sorted(lines(tmp_path / 'ran.txt')) == sorted(
        [*(f'note {place}' for place in PLACES), 'send north', 'send edited']
    )
    assert (work / 'plan.md').read_text() + (work / 'report.md').read_text() == 'draft\nold\n'

    said = run_in_a_process(
        tmp_path,
        {
            'c0/c2/c0': ['approve'],
            'c0/c3': ['approve'],
            'c1': ['approve'],
            'c3/c0/c1/c1': ['approve'],
            'c3/c2': ['respond', 'I sent it'],
            'c4': ['approve'],
        },
    )
    asked = lines(tmp_path / 'asked.txt')
    assert sorted(asked) == sorted(f'{place} {step}' for place in PLACES for step in (0, 1))
    assert said == {'output': 'root is done', 'waiting': [], 'requests': len(asked)}
    assert Counter(lines(tmp_path / 'ran.txt')) == Counter(
        [
            *(f'note {place}' for place in PLACES),
            'execute north/worker',
            *(f'send {each}' for each in ('edited', 'north', 'root', 'south/worker/helper')),
        ]
    )
    assert (work / 'plan.md').read_text() + (work / 'report.md').read_text() == 'final\nnew\n'
    assert set(lines(tmp_path / 'told.txt')) == {
        *(f"{place} note success: 'noted {place}'" for place in PLACES),
        "north/worker/helper send denied: 'not now'",
        "south/worker/helper send success: 'sent south/worker/helper'",
        "south/worker send success: 'sent edited'",
        "south/worker task success: 'south/worker/helper is done'",
        'south/worker besides: \'A person changed the arguments of the call c0 of send to: {"text": "edited"}\'',
        "south task success: 'south/worker is done'",
        "south send success: 'I sent it'",
        "north/worker execute success: 'Done; nothing was printed.'",
        "north/worker task success: 'north/worker/helper is done'",
        "north send success: 'sent north'",
        "north task success: 'north/worker is done'",
        "north edit_file success: 'Replaced 1 match at line 1.'",
        "root task success: 'north is done'",
        "root send success: 'sent root'",
        "root task success: 'south is done'",
        f"root write_file success: 'Replaced {under}/report.md: 1 line, 4 bytes.'",
    }


class Desk:
    """An agent rebuilt for every run, a person, and JSON between them."""

    def __init__(self, build: Callable[[], Agent[DeepAgentDeps, Any]], deps: DeepAgentDeps | None = None) -> None:
        self.build = build
        self.deps = deps or DeepAgentDeps()
        self.conversation: Conversation = Conversation()
        self.output: object = None
        self.told: list[tuple[str, str, str]] = []

    async def begin(self, prompt: str = 'go') -> list[PendingApproval]:
        return self._take(await self.build().run(prompt, deps=self.deps, usage_limits=UsageLimits(request_limit=None)))

    async def answer(self, decisions: Mapping[str, Decision]) -> list[PendingApproval]:
        return await self.go_on(answer_approvals(self.conversation.deferred_tool_requests, decisions))

    async def go_on(self, results: DeferredToolResults) -> list[PendingApproval]:
        result = await self.build().run(
            conversation=self.conversation,
            deferred_tool_results=results,
            deps=self.deps,
            usage_limits=UsageLimits(request_limit=None),
        )
        return self._take(result)

    def _take(self, result: AgentRunResult[Any]) -> list[PendingApproval]:
        dumped = ConversationTypeAdapter.dump_json(result.conversation)
        self.conversation = ConversationTypeAdapter.validate_json(dumped)
        self.output = result.output
        self.told = [
            (part.tool_name, part.outcome, part.model_response_str())
            for message in result.all_messages()
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        return pending_approvals(self.conversation.deferred_tool_requests)


def tool_call(tool_name: str, tool_call_id: str, /, **args: object) -> ToolCallPart:
    return ToolCallPart(tool_name, args, tool_call_id=tool_call_id)


Steps: TypeAlias = Sequence[Sequence[ToolCallPart]]

GO = [tool_call('task', 't', subagent='kid', description='go')]


def model(*steps: Sequence[ToolCallPart]) -> ScriptedModel:
    """Return a model that depends only on the messages: the steps in order, and then `done`."""

    def answer(messages: list[ModelMessage], _: AgentInfo) -> str | list[ToolCallPart]:
        step = sum(isinstance(message, ModelResponse) for message in messages)
        return list(steps[step]) if step < len(steps) else 'done'

    return ScriptedModel(then=answer)


class Wiper:
    """Tools that record their arguments."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def wipe(self, x: str) -> str:
        self.ran.append(x)
        return f'wiped {x}'

    def look(self, x: str) -> str:
        self.ran.append(f'look {x}')
        return f'saw {x}'

    def execute(self, command: str) -> str:
        self.ran.append(command)
        return 'ok'


@pytest.fixture
def wiper() -> Wiper:
    return Wiper()


def root(
    wiper: Wiper, *steps: Sequence[ToolCallPart], gates: Mapping[str, bool | ApprovalRule] | None = None, **more: Any
) -> Agent[DeepAgentDeps, Any]:
    """Return an agent with `wipe` and `look`; `wipe` is gated."""
    given: dict[str, Any] = {'tools': [wiper.wipe, wiper.look], **more}
    return create_deep_agent(model(*steps), interrupt_on={'wipe': True} if gates is None else gates, **given)


def parent(
    wiper: Wiper, *steps: Sequence[ToolCallPart], gates: Mapping[str, bool | ApprovalRule] | None = None, **more: Any
) -> Agent[DeepAgentDeps, Any]:
    """Return an agent whose subagent `kid` plays the steps."""
    kid = Subagent('kid', 'A child.', model=model(*steps), tools=[wiper.wipe, wiper.look])
    return root(wiper, GO, gates=gates, subagents=[kid], **more)


def ids(waiting: Sequence[PendingApproval]) -> list[str]:
    return [each.id for each in waiting]


# Bypasses that work elsewhere.


@pytest.mark.parametrize('subagent', ['kid', 'general-purpose'])
async def test_delegation_does_not_bypass_a_gate(wiper: Wiper, subagent: str) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> str | ToolCallPart:
        if any(isinstance(message, ModelResponse) for message in messages):
            return 'done'
        first = messages[0]
        assert isinstance(first, ModelRequest)
        is_child = any(isinstance(part, UserPromptPart) and part.content == 'wipe it' for part in first.parts)
        if is_child:
            return tool_call('write_file', 'c0', path='/a', content='x')
        return tool_call('task', 't', subagent=subagent, description='wipe it')

    def build() -> Agent[DeepAgentDeps, Any]:
        played = ScriptedModel(then=answer)
        kid = Subagent('kid', 'A child.', model=played)
        return create_deep_agent(played, subagents=[kid], interrupt_on={'write_file': True})

    desk = Desk(build)
    (waiting,) = await desk.begin()
    assert (waiting.path, waiting.tool, waiting.arguments) == (
        (subagent,),
        'write_file',
        {'path': '/a', 'content': 'x'},
    )
    assert not await desk.deps.backend.exists('/a')
    assert await desk.answer({waiting.id: Approve()}) == []
    assert await desk.deps.backend.read_bytes('/a') == b'x'


async def test_every_built_in_tool_can_be_gated(wiper: Wiper) -> None:
    calls = [
        tool_call('write_todos', 'c0', todos=[]),
        tool_call('ls', 'c1', path='/'),
        tool_call('read_file', 'c2', path='/a'),
        tool_call('write_file', 'c3', path='/b', content='x'),
        tool_call('edit_file', 'c4', path='/a', old_string='x', new_string='y'),
        tool_call('glob', 'c5', pattern='*'),
        tool_call('grep', 'c6', pattern='x'),
        tool_call('task', 'c7', subagent='general-purpose', description='x'),
        tool_call('load_skill', 'c8', name='tidy'),
        tool_call('wipe', 'c9', x='x'),
    ]
    gates = {each.tool_name: True for each in calls}
    desk = Desk(
        lambda: root(wiper, calls, gates=gates, skills=[Skill('tidy', 'Tidies.', body='Tidy.')]),
        DeepAgentDeps(backend=StateBackend({'/a': 'x'})),
    )
    waiting = await desk.begin()
    assert [each.tool for each in waiting] == list(gates)
    assert (wiper.ran, desk.told) == ([], [])


@pytest.mark.parametrize('name', ['wrte_file', 'wipe_', 'WIPE', 'kid', ''])
async def test_misspelt_tool_raises_before_the_first_request(wiper: Wiper, name: str) -> None:
    played = ScriptedModel('never')
    agent = create_deep_agent(played, tools=[wiper.wipe], interrupt_on={name: True})
    with pytest.raises(UserError, match='interrupt_on'):
        await agent.run('go', deps=DeepAgentDeps())
    assert played.requests == []


async def test_approval_in_a_subagent_is_asked_once_as_its_own_call(wiper: Wiper) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='a')], [tool_call('wipe', 'c1', x='b')]))
    shown: list[tuple[str, str, object]] = []
    waiting = await desk.begin()
    while waiting:
        shown += [(each.id, each.tool, each.arguments) for each in waiting]
        waiting = await desk.answer({each.id: Approve() for each in waiting})
    assert shown == [('t/c0', 'wipe', {'x': 'a'}), ('t/c1', 'wipe', {'x': 'b'})]
    assert wiper.ran == ['a', 'b']
    assert desk.told == [('task', 'success', 'done')]


async def test_ungated_call_beside_a_gated_one_runs_once_with_its_result(wiper: Wiper) -> None:
    calls = [tool_call('wipe', 'c0', x='a'), tool_call('look', 'c1', x='b')]
    desk = Desk(lambda: root(wiper, calls))
    await desk.begin()
    assert wiper.ran == ['look b']
    await desk.answer({'c0': Approve()})
    assert wiper.ran == ['look b', 'a']
    assert sorted(desk.told) == [('look', 'success', 'saw b'), ('wipe', 'success', 'wiped a')]


async def test_gated_delegation_asks_for_itself_and_then_for_its_calls(wiper: Wiper) -> None:
    gates = {'wipe': True, 'task': True}
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='a')], gates=gates))
    assert ids(await desk.begin()) == ['t']
    assert ids(await desk.answer({'t': Edit({'subagent': 'kid', 'description': 'other'})})) == ['t/c0']
    assert wiper.ran == []
    assert await desk.answer({'t/c0': Approve()}) == []
    assert wiper.ran == ['a']


# Forged and repeated answers.


async def test_rule_for_a_built_in_tool_that_a_run_lacks_is_valid() -> None:
    """A run at the deepest level has no `task`, and one without skills no `load_skill`."""
    rules = {'task': True, 'load_skill': True}
    agent = create_deep_agent(ScriptedModel('fin'), skills=[BackendSkills('/skills')], interrupt_on=rules)
    assert (await agent.run('go', deps=DeepAgentDeps(max_depth=0))).output == 'fin'


@pytest.mark.parametrize('tool', ['task', 'extra'])
async def test_general_purpose_subagent_runs_without_a_tool_that_its_parent_gates(tool: str) -> None:
    """It is the same agent, but has neither `task` nor the tools that were passed to the run."""

    def extra() -> str:
        return 'done'

    model = ScriptedModel(call('task', description='Look'), call('ls', path='/'), 'Looked.', 'fin')
    agent = create_deep_agent(model, interrupt_on={tool: True})
    deps, toolsets = DeepAgentDeps(), [FunctionToolset[object]([extra], id='extra')]
    result = await agent.run('go', deps=deps, toolsets=toolsets)
    if tool == 'task':
        answers = answer_approvals(result.output, {'call-1': Approve()})
        result = await agent.run(
            conversation=result.conversation, deferred_tool_results=answers, deps=deps, toolsets=toolsets
        )
    assert result.output == 'fin'
    assert model.requests[-1].tool_returns[-1].content == 'Looked.'


async def test_answers_for_calls_that_are_not_pending_are_refused(wiper: Wiper) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='a'), tool_call('wipe', 'c1', x='b')]))
    await desk.begin()
    for name in ('c0', 't', 't/c2', 't/', '/c0', 't/c0/', 't/c0/c0', '', 'T/c0'):
        with pytest.raises(UnknownApprovalError):
            await desk.answer({name: Approve()})
    assert ids(await desk.answer({'t/c0': Approve()})) == ['t/c1']
    with pytest.raises(UnknownApprovalError):
        await desk.answer({'t/c0': Approve()})
    assert wiper.ran == ['a']


async def test_used_answers_are_refused_the_second_time(wiper: Wiper) -> None:
    desk = Desk(lambda: root(wiper, [tool_call('wipe', 'c0', x='a'), tool_call('wipe', 'c1', x='b')]))
    await desk.begin()
    results = answer_approvals(desk.conversation.deferred_tool_requests, {'c0': Approve()})
    assert ids(await desk.go_on(results)) == ['c1']
    with pytest.raises(UserError, match='already executed'):
        await desk.go_on(results)
    assert await desk.answer({'c1': Approve()}) == []
    with pytest.raises(UserError):
        await desk.go_on(results)
    assert wiper.ran == ['a', 'b']


async def test_answers_of_a_subagent_are_refused_after_the_parent_has_ended(wiper: Wiper) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='a')]))
    await desk.begin()
    results = answer_approvals(desk.conversation.deferred_tool_requests, {'t/c0': Approve()})
    assert await desk.go_on(results) == []
    with pytest.raises(UserError):
        await desk.go_on(results)
    assert wiper.ran == ['a']


async def test_answer_to_another_conversation_approves_nothing(wiper: Wiper) -> None:
    theirs = Desk(lambda: root(wiper, [tool_call('wipe', 'c0', x='harmless')]))
    ours = Desk(lambda: root(wiper, [tool_call('wipe', 'c0', x='precious')]))
    await theirs.begin()
    await ours.begin()
    results = answer_approvals(theirs.conversation.deferred_tool_requests, {'c0': Approve()})
    (waiting,) = await ours.go_on(results)
    assert waiting.arguments == {'x': 'precious'}
    assert wiper.ran == []


async def test_blanket_approval_runs_nothing_in_a_subagent(wiper: Wiper) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='a')]))
    await desk.begin()
    requests = desk.conversation.deferred_tool_requests
    assert requests is not None
    with pytest.raises(UserError, match='the pending calls of its subagent are not answered'):
        await desk.go_on(requests.build_results(approve_all=True))
    assert wiper.ran == []


Change: TypeAlias = Callable[[dict[str, Any]], object]
"""Changes the pending requests in the JSON of a conversation."""


def nested(requests: dict[str, Any]) -> dict[str, Any]:
    return requests['metadata']['t']['pydantic_deep']


FORGERIES: list[Change] = [
    lambda r: nested(r)['requests']['approvals'][0].update(args={'x': 'harmless'}),
    lambda r: nested(r).update(messages=[]),
    lambda r: nested(r).update(messages=[{'kind': 'nothing'}]),
    lambda r: nested(r).update(messages=None),
    lambda r: nested(r).update(subagent='general-purpose'),
    lambda r: nested(r).update(conversation_id='another'),
    lambda r: r['metadata']['t'].update(pydantic_deep={'kind': 'call'}),
    lambda r: r['metadata'].pop('t'),
    lambda r: nested(r)['requests']['approvals'][0].update(tool_call_id='other'),
    lambda r: nested(r)['requests']['approvals'][0].update(tool_name='look'),
    lambda r: nested(r)['requests']['metadata'].clear(),
]


@pytest.mark.parametrize('change', FORGERIES)
async def test_forged_pause_never_runs_a_call_that_was_not_shown(wiper: Wiper, change: Change) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='precious')]))
    await desk.begin()
    document = ConversationTypeAdapter.dump_python(desk.conversation, mode='json')
    change(document['deferred_tool_requests'])
    desk.conversation = ConversationTypeAdapter.validate_python(document)
    waiting = pending_approvals(desk.conversation.deferred_tool_requests)
    shown = [dict(each.arguments) for each in waiting if each.tool == 'wipe']
    await desk.answer({each.id: Approve() for each in waiting})
    assert wiper.ran == [] or (wiper.ran, shown) == (['precious'], [{'x': 'precious'}])


@pytest.mark.parametrize('forged', [{'kind': 'nothing'}, {'kind': 'delegation'}, 'text', 1, [], {}])
async def test_unreadable_forged_metadata_raises(wiper: Wiper, forged: object) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='precious')]))
    await desk.begin()
    document = ConversationTypeAdapter.dump_python(desk.conversation, mode='json')
    document['deferred_tool_requests']['metadata']['t']['pydantic_deep'] = forged
    desk.conversation = ConversationTypeAdapter.validate_python(document)
    with pytest.raises(MalformedApprovalError):
        pending_approvals(desk.conversation.deferred_tool_requests)
    with pytest.raises(MalformedApprovalError):
        await desk.answer({'t/c0': Approve()})
    assert wiper.ran == []


async def test_forged_arguments_in_the_request_are_not_the_approved_ones(wiper: Wiper) -> None:
    desk = Desk(lambda: root(wiper, [tool_call('wipe', 'c0', x='precious')]))
    await desk.begin()
    document = ConversationTypeAdapter.dump_python(desk.conversation, mode='json')
    document['deferred_tool_requests']['approvals'][0]['args'] = {'x': 'harmless'}
    desk.conversation = ConversationTypeAdapter.validate_python(document)
    (waiting,) = await desk.answer({'c0': Approve()})
    assert waiting.arguments == {'x': 'precious'}
    assert wiper.ran == []


# Agents that changed since they paused.


@pytest.mark.parametrize('later', [{}, {'wipe': False}, {'wipe': ApprovalRule(when=lambda _: False)}])
async def test_less_strict_agent_neither_drops_nor_repeats_pending_calls(
    wiper: Wiper, later: dict[str, bool | ApprovalRule]
) -> None:
    gates: list[dict[str, bool | ApprovalRule]] = [{'wipe': True}]
    calls = [tool_call('wipe', f'c{n}', x=f'{n}') for n in range(3)]
    desk = Desk(lambda: root(wiper, calls, gates=gates[-1]))
    await desk.begin()
    gates.append(later)
    assert ids(await desk.answer({'c1': Deny('no')})) == ['c0', 'c2']
    assert wiper.ran == []
    assert ids(await desk.answer({'c2': Approve()})) == ['c0']
    assert await desk.answer({'c0': Approve()}) == []
    assert wiper.ran == ['2', '0']


async def test_stricter_agent_refuses_a_call_approved_under_the_old_rule(wiper: Wiper) -> None:
    rules = [ApprovalRule()]
    run = [tool_call('execute', 'c0', command='rm x')]
    desk = Desk(lambda: root(wiper, run, gates={'execute': rules[-1]}, tools=[wiper.execute], include_filesystem=False))
    await desk.begin()
    rules.append(ApprovalRule(deny=['rm *']))
    assert await desk.answer({'c0': Approve()}) == []
    assert wiper.ran == []
    assert [outcome for _, outcome, _ in desk.told] == ['failed']


@pytest.mark.parametrize(
    'later',
    [
        [Subagent('kid', 'Without the tool.', model=model())],
        [Subagent('kid', 'Another agent.', agent=Agent(model()))],
    ],
)
async def test_answers_for_a_replaced_subagent_run_nothing(wiper: Wiper, later: list[Subagent]) -> None:
    calls = [tool_call('task', 't', subagent='kid', description='go'), tool_call('wipe', 'c1', x='root')]
    kid = Subagent('kid', 'A child.', model=model([tool_call('wipe', 'c0', x='a')]), tools=[wiper.wipe])
    subagents = [[kid]]
    desk = Desk(lambda: root(wiper, calls, subagents=subagents[-1]))
    assert ids(await desk.begin()) == ['t/c0', 'c1']
    subagents.append(later)
    assert await desk.answer({'t/c0': Approve(), 'c1': Approve()}) == []
    assert wiper.ran == ['root']


async def test_subagent_beyond_the_new_depth_limit_does_not_run(wiper: Wiper) -> None:
    desk = Desk(lambda: parent(wiper, [tool_call('wipe', 'c0', x='a')]))
    await desk.begin()
    desk.deps = DeepAgentDeps(max_depth=0)
    assert await desk.answer({'t/c0': Approve()}) == []
    assert wiper.ran == []
    assert [outcome for _, outcome, _ in desk.told] == ['failed']


# Files.


def tool_returns(messages: Sequence[ModelMessage]) -> list[ToolReturnPart]:
    return [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]


def writes(rule: bool | ApprovalRule, tool: str, **args: object) -> Callable[[], Agent[DeepAgentDeps, Any]]:
    return lambda: create_deep_agent(model([tool_call(tool, 'c0', **args)]), interrupt_on={tool: rule})


@pytest.mark.parametrize(('before', 'meanwhile'), [('old\n', 'theirs\n'), (None, 'theirs\n'), ('old\n', None)])
async def test_write_is_asked_again_when_the_file_changed_meanwhile(
    tmp_path: Path, before: str | None, meanwhile: str | None
) -> None:
    file = tmp_path / 'a.txt'
    if before is not None:
        file.write_text(before)
    desk = Desk(
        writes(True, 'write_file', path='a.txt', content='mine\n'), DeepAgentDeps(backend=LocalBackend(tmp_path))
    )
    (first,) = await desk.begin()
    if meanwhile is None:
        file.unlink()
    else:
        file.write_text(meanwhile)
    (second,) = await desk.answer({'c0': Approve()})
    assert (file.read_text() if file.exists() else None) == meanwhile
    assert first.preview is not None
    assert second.preview is not None
    assert str(first.preview) != str(second.preview)
    assert (f'-{meanwhile}' if meanwhile else '--- /dev/null') in str(second.preview)
    assert await desk.answer({'c0': Approve()}) == []
    assert file.read_text() == 'mine\n'


@pytest.mark.parametrize('edits', [False, True])
@pytest.mark.parametrize(
    ('tool', 'args'),
    [
        ('write_file', {'content': 'new\n'}),
        ('edit_file', {'old_string': 'a', 'new_string': 'new', 'replace_all': True}),
    ],
)
async def test_approved_calls_of_concurrent_subagents_do_not_overwrite_each_other(
    tool: str, args: dict[str, Any], edits: bool
) -> None:
    """Both are checked before either writes. The second fails, because a person approved it for other contents."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
        prompt = next(str(part.content) for part in messages[0].parts if isinstance(part, UserPromptPart))
        if len(messages) > 1:
            return str(tool_returns(messages)[-1].content)
        if prompt == 'go':
            return [call('task', subagent='writer', description=name) for name in ('first', 'second')]
        return call(tool, path='/shared', **args)

    agent = create_deep_agent(
        ScriptedModel(then=answer), subagents=[Subagent('writer', 'x')], interrupt_on={tool: True}
    )
    files = StateBackend({'/shared': 'a\na\n'})
    deps = DeepAgentDeps(backend=files)
    result = await agent.run('go', deps=deps)
    decisions = {
        pending.id: Edit({**pending.arguments, 'path': 'shared'}) if edits else Approve(digest=pending.digest)
        for pending in pending_approvals(result.output)
    }
    results = answer_approvals(result.output, decisions)
    result = await agent.run(conversation=result.conversation, deferred_tool_results=results, deps=deps)
    first, second = (str(part.content) for part in tool_returns(result.all_messages()))
    assert first.startswith('Replaced')
    assert second.partition('\n')[0] == '/shared changed after the approval. Read it again, then write.'


async def test_approval_does_not_follow_a_directory_replaced_by_a_link(tmp_path: Path) -> None:
    for name in ('ok', 'secret'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'a.txt').write_text('same\n')
    backend = LocalBackend(tmp_path)
    desk = Desk(writes(True, 'write_file', path='ok/a.txt', content='mine\n'), DeepAgentDeps(backend=backend))
    await desk.begin()
    (tmp_path / 'ok').rename(tmp_path / 'gone')
    (tmp_path / 'ok').symlink_to('secret')
    (waiting,) = await desk.answer({'c0': Approve()})
    assert waiting.preview is not None
    assert '/secret/a.txt' in str(waiting.preview)
    assert (tmp_path / 'secret' / 'a.txt').read_text() == 'same\n'


SPELLINGS = (
    'secret/x', '/secret/x', './secret/x', '//secret//x', '/secret//x', 'secret/../secret/x', 'ok/../secret/x',
    'link/x', '/link/x', 'direct', 'deep/er/../../link/x', 'secret/./x', 'secret/x/', 'secret/x ', ' secret/x',
    'secret\\x', 'file:///secret/x', 'secret/x\x00', 'secret%2fx', '~/secret/x', 'secret/sub/../x', 'again/secret/x',
    'again/again/link/x', 'se\u200bcret/x', 'SECRET/x', '/./secret/x', 'ok/into/x',
)  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize('tool', ['write_file', 'edit_file', 'read_file'])
async def test_no_spelling_of_a_path_bypasses_a_pattern(tmp_path: Path, tool: str) -> None:
    for name in ('secret/sub', 'ok', 'deep/er'):
        (tmp_path / name).mkdir(parents=True)
    secret = tmp_path / 'secret' / 'x'
    secret.write_text('top\n')
    for link, target in (
        ('link', 'secret'), ('direct', 'secret/x'), ('again', '.'), ('ok/into', '../secret'),
    ):  # fmt: skip
        (tmp_path / link).symlink_to(target)
    args = {
        'write_file': {'content': 'pwn\n'},
        'edit_file': {'old_string': 'top', 'new_string': 'pwn'},
        'read_file': {},
    }[tool]
    for rule in (
        ApprovalRule(deny=['/secret/**']),
        ApprovalRule(deny=['secret/**'], allow=['/**']),
        ApprovalRule(allow=['/ok/**', '/link/**', '/direct', '/again/**']),
    ):
        for path in SPELLINGS:
            desk = Desk(writes(rule, tool, path=path, **args), DeepAgentDeps(backend=LocalBackend(tmp_path)))
            waiting = await desk.begin()
            if rule.deny and waiting:
                await desk.answer({'c0': Approve()})
            assert secret.read_text() == 'top\n', (path, rule)
            assert not any('top' in text for _, _, text in desk.told), (path, rule)


async def test_prefixed_file_tools_have_previews_and_patterns() -> None:
    def build(path: str) -> Agent[DeepAgentDeps, Any]:
        return create_deep_agent(
            model([tool_call('fs_write_file', 'c0', path=path, content='x\n')]),
            include_filesystem=False,
            capabilities=[PrefixTools(wrapped=Filesystem(), prefix='fs')],
            interrupt_on={'fs_write_file': ApprovalRule(deny=['/secret/**'])},
        )

    desk = Desk(lambda: build('/ok/a'))
    (waiting,) = await desk.begin()
    assert waiting.preview is not None
    assert str(waiting.preview) == '--- /dev/null\n+++ b/ok/a\n@@ -0,0 +1 @@\n+x'
    desk = Desk(lambda: build('/secret/a'))
    assert await desk.begin() == []
    assert [outcome for _, outcome, _ in desk.told] == ['failed']


# Commands.


TRICKS = (
    'git status; rm -rf /', 'git status;rm x', 'git status\nrm -rf /', 'git status\r\nrm x', 'git status\rrm x',
    'git status $(rm x)', 'git status "$(rm x)"', 'git status `rm x`', 'git status "`rm x`"', 'git status && rm x',
    'git status || rm x', 'git status | rm x', 'git status |& rm x', 'git status & rm x', 'git status <(rm x)',
    'git status >(rm x)', 'git status ${x:-$(rm x)}', 'git status $((`rm x`))', '(git status; rm x)',
    '{ git status; rm x; }', 'git status <<E\n$(rm x)\nE', 'git status <<E\nx\nE\nrm x', 'git status # \nrm x',
    'git status "a" ; rm x', "git status 'a' ; rm x", 'git status \\\n; rm x', 'git status\x00; rm x',
)  # fmt: skip
"""An allowed command followed by another one."""

NOT_SIMPLE = (
    'git status > /etc/passwd', 'git status >> x', 'git status 2>&1', 'git status < x', 'PATH=. git status',
    'FOO=bar git status', 'env git status', 'sudo git status', 'git status "unclosed', "git status 'unclosed",
    'git status $HOME', 'git status ${IFS}x', 'git status ~', 'git status {a,b}', '! git status', 'git status\\',
    "$'git' status", 'git\u00a0status', 'git\u2028status', 'GIT status', '/usr/bin/git status', './git status',
    'gitx status', 'git  statusx', 'git -c core.pager=rm status', 'command git status', 'git', '', ' ', '\n',
)  # fmt: skip
"""Commands other than the allowed one, or more than it."""


@pytest.mark.parametrize('command', [*TRICKS, *NOT_SIMPLE])
async def test_shell_tricks_do_not_run_behind_an_allowed_command(wiper: Wiper, command: str) -> None:
    rule = ApprovalRule(allow=['git status *', 'git status'])
    run = [tool_call('execute', 'c0', command=command)]
    desk = Desk(lambda: root(wiper, run, gates={'execute': rule}, tools=[wiper.execute], include_filesystem=False))
    (waiting,) = await desk.begin()
    assert waiting.arguments == {'command': command}
    assert wiper.ran == []


@pytest.mark.parametrize('command', [*TRICKS[:21], 'FOO=1 rm x', 'env rm x', '/bin/rm x', '"rm" x', "r'm' x", 'r\\m x'])
async def test_denied_command_is_found_among_others_and_cannot_be_approved(wiper: Wiper, command: str) -> None:
    rule = ApprovalRule(deny=['rm *'])
    run = [tool_call('execute', 'c0', command=command)]
    desk = Desk(lambda: root(wiper, run, gates={'execute': rule}, tools=[wiper.execute], include_filesystem=False))
    for each in await desk.begin():
        await desk.answer({each.id: Approve()})
    assert wiper.ran == []


@pytest.mark.parametrize('given', [{'x': 1}, {'y': 'a'}, {}, {'x': 'a', 'more': 1}, {'x': None}])
async def test_invalid_edited_arguments_run_nothing(wiper: Wiper, given: dict[str, Any]) -> None:
    desk = Desk(lambda: root(wiper, [tool_call('wipe', 'c0', x='a')]))
    await desk.begin()
    for each in await desk.answer({'c0': Edit(given)}):
        pytest.fail(f'asks again: {each}')
    assert wiper.ran == []
    assert [outcome for _, outcome, _ in desk.told] == ['failed']


async def test_edited_arguments_that_match_a_deny_pattern_run_nothing(wiper: Wiper) -> None:
    run = [tool_call('execute', 'c0', command='ls')]
    gates = {'execute': ApprovalRule(deny=['rm *'])}
    desk = Desk(lambda: root(wiper, run, gates=gates, tools=[wiper.execute], include_filesystem=False))
    await desk.begin()
    assert await desk.answer({'c0': Edit({'command': 'ls; rm -rf /'})}) == []
    assert wiper.ran == []
    deps = DeepAgentDeps()
    desk = Desk(writes(ApprovalRule(deny=['/secret/**']), 'write_file', path='/a', content='x'), deps)
    await desk.begin()
    assert await desk.answer({'c0': Edit({'path': '/secret/a', 'content': 'x'})}) == []
    assert not await deps.backend.exists('/secret/a')


# Tools from other toolsets.


def dynamic(wiper: Wiper) -> AbstractToolset[Any]:
    """Return a toolset that provides its tools when a run starts, like an MCP server."""
    return DynamicToolset[Any](lambda _: FunctionToolset([wiper.wipe]), id='server')


Wrap: TypeAlias = Callable[[Wiper], AbstractToolset[Any]]

WRAPS: list[tuple[Wrap, str]] = [
    (lambda w: FunctionToolset[Any]([w.wipe]).prefixed('mcp'), 'mcp_wipe'),
    (lambda w: FunctionToolset[Any]([w.wipe]).renamed({'clean': 'wipe'}), 'clean'),
    (lambda w: FunctionToolset[Any]([w.wipe]).prefixed('a').prefixed('b'), 'b_a_wipe'),
    (dynamic, 'wipe'),
    (lambda w: dynamic(w).prefixed('mcp'), 'mcp_wipe'),
]


@pytest.mark.parametrize(('wrap', 'name'), WRAPS)
@pytest.mark.parametrize('where', ['root', 'child'])
async def test_tool_is_gated_by_the_name_that_the_model_sees(wiper: Wiper, wrap: Wrap, name: str, where: str) -> None:
    def build() -> Agent[DeepAgentDeps, Any]:
        calls = [tool_call(name, 'c0', x='a')]
        if where == 'root':
            return root(wiper, calls, gates={name: True}, tools=[], toolsets=[wrap(wiper)])
        kid = Subagent('kid', '.', model=model(calls), toolsets=[wrap(wiper)], interrupt_on={name: True})
        return root(wiper, GO, gates={}, tools=[], subagents=[kid])

    desk = Desk(build)
    (waiting,) = await desk.begin()
    assert (waiting.tool, wiper.ran) == (name, [])
    assert await desk.answer({waiting.id: Approve()}) == []
    assert wiper.ran == ['a']


@pytest.mark.parametrize('gates', [{}, {'wipe': True}])
@pytest.mark.parametrize('in_child', [False, True])
async def test_harness_guardrail_asks_like_a_gate(wiper: Wiper, gates: dict[str, bool], in_child: bool) -> None:
    harness = pytest.importorskip('pydantic_ai_harness', reason='it pins another release of pydantic-ai')

    def guard(_: object, called: Any) -> Any:
        allowed = harness.GuardrailResult.allow()
        return harness.GuardrailResult.approve() if 'wipe' in repr(called) else allowed

    calls = [tool_call('wipe', 'c0', x='a'), tool_call('look', 'c1', x='b')]

    def build() -> Agent[DeepAgentDeps, Any]:
        guardrail = harness.ToolGuardrail(guard=guard)
        if not in_child:
            return root(wiper, calls, gates=gates, capabilities=[guardrail])
        kid = Subagent('kid', '.', model=model(calls), tools=[wiper.wipe, wiper.look], capabilities=[guardrail])
        return root(wiper, GO, gates=gates, subagents=[kid])

    desk = Desk(build)
    (waiting,) = await desk.begin()
    assert (waiting.tool, wiper.ran) == ('wipe', ['look b'])
    assert await desk.answer({waiting.id: Approve()}) == []
    assert wiper.ran == ['look b', 'a']


# Skills.


TIDY = Skill('tidy', 'Tidies.', body='Tidy.', allowed_tools=('execute(tidy *)',))
LOAD = [tool_call('load_skill', 'l0', name='tidy')]
TIDYING = [tool_call('execute', 'c0', command='tidy a')]
COMMANDS = {'execute': True}


def tidying(wiper: Wiper, *steps: Any, **more: Any) -> Agent[DeepAgentDeps, Any]:
    """Return an agent with the skill and gated commands."""
    options: dict[str, Any] = {'gates': COMMANDS, 'skills': [TIDY], **more}
    return root(wiper, *steps, tools=[wiper.execute], include_filesystem=False, **options)


async def test_loaded_skill_allows_its_commands_afterwards(wiper: Wiper) -> None:
    desk = Desk(lambda: tidying(wiper, LOAD, TIDYING))
    assert await desk.begin() == []
    assert wiper.ran == ['tidy a']


@pytest.mark.parametrize('steps', [[TIDYING], [[*LOAD, *TIDYING]]])
async def test_skill_that_is_not_loaded_yet_allows_nothing(wiper: Wiper, steps: Steps) -> None:
    desk = Desk(lambda: tidying(wiper, *steps))
    assert ids(await desk.begin()) == ['c0']
    assert wiper.ran == []


async def test_loaded_skill_is_remembered_by_another_process(wiper: Wiper) -> None:
    steps = [LOAD, [tool_call('execute', 'c1', command='look b')], TIDYING]
    desk = Desk(lambda: tidying(wiper, *steps))
    assert ids(await desk.begin()) == ['c1']
    assert await desk.answer({'c1': Approve()}) == []
    assert wiper.ran == ['look b', 'tidy a']


@pytest.mark.parametrize('loader', ['parent', 'sibling'])
async def test_skill_of_one_agent_allows_nothing_to_another(wiper: Wiper, loader: str) -> None:
    def build() -> Agent[DeepAgentDeps, Any]:
        reader = Subagent('reader', 'Reads skills.', model=model(LOAD), tools=[wiper.execute], skills=[TIDY])
        kid = Subagent('kid', 'A child.', model=model(TIDYING), tools=[wiper.execute], skills=[TIDY])
        first = [tool_call('task', 'r', subagent='reader', description='go')] if loader == 'sibling' else LOAD
        return tidying(wiper, first, GO, subagents=[reader, kid])

    desk = Desk(build)
    assert ids(await desk.begin()) == ['t/c0']
    assert wiper.ran == []


@pytest.mark.parametrize('command', ['git log; rm x', 'rm x', 'ls', 'git $(rm x)', 'git log > x'])
async def test_skill_allows_only_its_named_commands_and_never_denied_ones(wiper: Wiper, command: str) -> None:
    skill = Skill('tidy', 'Tidies.', body='Tidy.', allowed_tools=('execute(git *)', 'execute(rm *)'))
    run = [tool_call('execute', 'c0', command=command)]
    gates = {'execute': ApprovalRule(deny=['rm *'])}
    more: dict[str, Any] = {'tools': [wiper.execute], 'include_filesystem': False, 'skills': [skill]}
    await Desk(lambda: root(wiper, LOAD, run, gates=gates, **more)).begin()
    assert wiper.ran == []


# Other kinds of runs.


async def test_streamed_run_pauses_and_resumes(wiper: Wiper) -> None:
    calls = [tool_call('wipe', 'c0', x='a'), tool_call('look', 'c1', x='b')]

    async def stream(prompt: str | None, **given: Any) -> AgentRunResult[Any]:
        found: list[AgentRunResult[Any]] = []
        async with parent(wiper, calls).run_stream_events(prompt, deps=DeepAgentDeps(), **given) as events:
            async for event in events:
                if isinstance(event, AgentRunResultEvent):
                    found.append(event.result)
        (result,) = found
        return result

    paused = await stream('go')
    assert wiper.ran == ['look b']
    conversation = ConversationTypeAdapter.validate_json(ConversationTypeAdapter.dump_json(paused.conversation))
    results = answer_approvals(conversation.deferred_tool_requests, {'t/c0': Approve()})
    ended = await stream(None, conversation=conversation, deferred_tool_results=results)
    assert ended.output == 'done'
    assert wiper.ran == ['look b', 'a']


async def test_run_cancelled_with_a_pending_subagent_call_runs_nothing_later(wiper: Wiper) -> None:
    is_paused = asyncio.Event()

    async def stay(x: str) -> str:
        wiper.ran.append(f'stay {x}')
        is_paused.set()
        await asyncio.Event().wait()
        return x

    def build() -> Agent[DeepAgentDeps, Any]:
        kid = Subagent('kid', 'A child.', model=model([tool_call('wipe', 'c0', x='a')]), tools=[wiper.wipe])
        calls = [tool_call('task', 't', subagent='kid', description='go'), tool_call('stay', 's', x='here')]
        return root(wiper, calls, tools=[wiper.wipe, stay], subagents=[kid])

    with capture_run_messages() as messages:
        task = asyncio.create_task(build().run('go', deps=DeepAgentDeps()))
        await is_paused.wait()
        for _ in range(200):  # the subagent pauses meanwhile: it needs only the event loop
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    result = await build().run('go on', message_history=list(messages), deps=DeepAgentDeps())
    assert result.output == 'done'
    assert wiper.ran == ['stay here']


async def test_two_users_of_one_agent_are_answered_separately(wiper: Wiper) -> None:
    def answer(messages: list[ModelMessage], _: AgentInfo) -> str | ToolCallPart:
        first = messages[0]
        assert isinstance(first, ModelRequest)
        said = next(str(part.content) for part in first.parts if isinstance(part, UserPromptPart))
        if len(messages) > 1:
            return f'done for {said}'
        if said.startswith('child'):
            return tool_call('wipe', 'c0', x=said)
        return tool_call('task', 't', subagent='kid', description=f'child of {said}')

    played = ScriptedModel(then=answer)
    kid = Subagent('kid', 'A child.', model=played, tools=[wiper.wipe])
    agent = create_deep_agent(played, tools=[wiper.wipe], subagents=[kid], interrupt_on={'wipe': True})
    ann, bob = await asyncio.gather(*(agent.run(name, deps=DeepAgentDeps()) for name in ('ann', 'bob')))
    assert [[each.arguments for each in pending_approvals(run.output)] for run in (ann, bob)] == [
        [{'x': 'child of ann'}],
        [{'x': 'child of bob'}],
    ]
    decisions: list[tuple[AgentRunResult[Any], Decision]] = [(ann, Deny('no')), (bob, Approve())]
    ended = await asyncio.gather(
        *(
            agent.run(
                conversation=run.conversation,
                deferred_tool_results=answer_approvals(run.output, {'t/c0': decision}),
                deps=DeepAgentDeps(),
            )
            for run, decision in decisions
        )
    )
    assert [run.output for run in ended] == ['done for ann', 'done for bob']
    assert wiper.ran == ['child of bob']


@pytest.mark.slow
async def test_cost_of_pending_approvals_is_linear(wiper: Wiper) -> None:
    async def events_for(count: int) -> int:
        """Count calls of our Python functions, which are deterministic."""
        counted = [0]

        def count_calls(frame: Any, event: str, _: object) -> None:
            if event == 'call' and 'pydantic_deep' in frame.f_code.co_filename:
                counted[0] += 1

        calls = [tool_call('wipe', f'c{n}', x=f'{n}') for n in range(count)]
        desk = Desk(lambda: root(wiper, calls))
        before = sys.getprofile()
        sys.setprofile(count_calls)
        try:
            waiting = await desk.begin()
            assert len(waiting) == count
            assert len(await desk.answer({each.id: Approve() for each in waiting[::2]})) == count // 2
            assert await desk.answer({each.id: Approve() for each in waiting[1::2]}) == []
        finally:
            sys.setprofile(before)
        return counted[0]

    few, many = await events_for(50), await events_for(200)
    assert Counter(wiper.ran) == Counter([*map(str, range(50)), *map(str, range(200))])
    assert many < 4.5 * few


async def test_edited_call_of_a_self_gated_tool_runs_with_the_new_arguments(wiper: Wiper) -> None:
    def own(ctx: RunContext[Any], x: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired(metadata={'why': x})
        return wiper.wipe(x)

    desk = Desk(
        lambda: root(wiper, [tool_call('wipe', 'c0', x='a')], gates={}, tools=[Tool(own, name='wipe')]),
    )
    (waiting,) = await desk.begin()
    requests = desk.conversation.deferred_tool_requests
    assert requests is not None
    assert requests.metadata['c0']['why'] == 'a'
    assert await desk.answer({waiting.id: Edit({'x': 'b'})}) == []
    assert wiper.ran == ['b']
