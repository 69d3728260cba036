"""Grants: which commands a loaded skill lets run without asking, and who said so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, Conversation, ConversationTypeAdapter, DeferredToolResults, Tool, ToolApproved
from pydantic_ai.messages import ModelRequest, ToolCallPart, ToolReturnPart

from pydantic_deep import (
    Approve,
    BackendSkills,
    DeepAgentDeps,
    Deny,
    Edit,
    LocalBackend,
    PendingApproval,
    Skill,
    SkillDirectory,
    StateBackend,
    Subagent,
    VersionedAgent,
    answer_approvals,
    create_deep_agent,
    discover_skills,
    open_store,
    pending_approvals,
    render_approval,
)
from pydantic_deep.approvals import ApprovalRule, Approvals, Decision
from pydantic_deep.audit import AUDIT_FIELDS, Audit, AuditedGrant, AuditRecord, audit_of_run
from pydantic_deep.repository.memory import MemoryRepository
from pydantic_deep.skills import Skills
from pydantic_deep.testing import ScriptedModel

from .conftest import WriteSkill

pytestmark = pytest.mark.anyio

LOAD = ToolCallPart('load_skill', {'name': 'git'}, tool_call_id='load')
GATES: dict[str, Any] = {'execute': True}


def run(command: str, id: str = 'run', **more: object) -> ToolCallPart:
    return ToolCallPart('execute', {'command': command, **more}, tool_call_id=id)


class Desk:
    """An agent that is built anew for each run, with JSON in between, and a person."""

    def __init__(
        self,
        *sources: Any,
        gates: Mapping[str, Any] = GATES,
        deps: DeepAgentDeps | None = None,
        marks: bool = False,
    ) -> None:
        self.sources, self.gates, self.deps = sources, gates, deps or DeepAgentDeps()
        self.marks = marks
        """Whether the tool itself requires an approval."""
        self.steps: list[Any] = []
        self.ran: list[str] = []
        self.conversation = Conversation()
        self.output: object = None
        self.extra: dict[str, Any] = {}

    def execute(self, command: str, env: dict[str, str] | None = None, timeout_seconds: float = 9) -> str:
        self.ran.append(command)
        return 'ok'

    def agent(self) -> Agent[DeepAgentDeps, Any]:
        def play(messages: list[Any], info: object) -> Any:
            return self.steps.pop(0) if self.steps else 'done'

        return create_deep_agent(
            ScriptedModel(then=play),
            tools=[Tool(self.execute, requires_approval=self.marks)],
            include_filesystem=False,
            skills=self.sources,
            interrupt_on=self.gates,
            **self.extra,
        )

    async def go(self, *steps: Any) -> list[PendingApproval]:
        self.steps += steps
        return self._keep(await self.agent().run('go', deps=self.deps, conversation=self.conversation))

    async def answer(self, **decisions: Decision) -> list[PendingApproval]:
        return await self.resume(answer_approvals(self.conversation.deferred_tool_requests, decisions))

    async def resume(self, results: DeferredToolResults) -> list[PendingApproval]:
        return self._keep(
            await self.agent().run(deps=self.deps, conversation=self.conversation, deferred_tool_results=results)
        )

    def _keep(self, result: Any) -> list[PendingApproval]:
        text = ConversationTypeAdapter.dump_json(result.conversation)
        self.conversation = ConversationTypeAdapter.validate_json(text)
        return pending_approvals(result.output)

    @property
    def loaded(self) -> list[tuple[str, object]]:
        """What the calls of `load_skill` gave: the content, and the grant in the metadata."""
        requests = [each for each in self.conversation.messages if isinstance(each, ModelRequest)]
        parts = [part for each in requests for part in each.parts if isinstance(part, ToolReturnPart)]
        loads = [
            (part, cast('dict[str, Any]', part.metadata or {})) for part in parts if part.tool_name == 'load_skill'
        ]
        return [(str(part.content), metadata.get('grants')) for part, metadata in loads]


def ids(waiting: list[PendingApproval]) -> list[str]:
    return [each.id for each in waiting]


@pytest.fixture
def skills(write_skill: WriteSkill) -> Callable[[str], Path]:
    """Write a skill `git` with these `allowed-tools` and return the directory that it is in."""

    def write(allowed: str) -> Path:
        return write_skill('git', f'description: x\nallowed-tools: {allowed}', 'Use git.').parent

    return write


def rewrite(directory: Path, allowed: str) -> None:
    (directory / 'git/SKILL.md').write_text(f'---\nname: git\ndescription: x\nallowed-tools: {allowed}\n---\nUse git.')


BARE = [
    'Bash',
    'execute',
    'Bash()',
    'Bash(*)',
    'Bash(:*)',
    'execute( )',
    'Bash(g* status)',
    'Bash Read',
    "'*'",
    'Bash(',
]
"""What names no command."""


@pytest.mark.parametrize('allowed', BARE)
@pytest.mark.parametrize('grants', [True, None])
async def test_a_skill_without_commands_lifts_no_gate(
    skills: Callable[[str], Path], allowed: str, grants: bool | None
) -> None:
    """Frontmatter never widens what code gates: a bare tool name in `allowed-tools` grants nothing, even where the code
    grants what skills of the directory name, and nobody is asked to grant it."""
    desk = Desk(SkillDirectory(skills(allowed), grants=grants))
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']
    assert (desk.ran, desk.loaded) == ([], [('Use git.', None)])


async def test_other_tools_cannot_be_granted(skills: Callable[[str], Path]) -> None:
    """Only commands can be granted: a name of another tool, with brackets or without, grants nothing."""
    desk = Desk(SkillDirectory(skills('load_skill write_todos(x *) Write'), grants=True), gates={'write_todos': True})
    waiting = await desk.go(LOAD, ToolCallPart('write_todos', {'todos': []}, tool_call_id='todo'))
    assert ids(waiting) == ['todo']


async def test_code_grants_commands_by_pattern(skills: Callable[[str], Path]) -> None:
    """`SkillDirectory(grants=True)` lets the commands that a loaded skill names run; they are shown when it is loaded."""
    desk = Desk(SkillDirectory(skills('Read Bash(git status:*) execute(git log)'), grants=True))
    steps = [LOAD, run('git status -s', 'a'), run('git log', 'b'), run('git log -p', 'c')]
    assert ids(await desk.go(*steps)) == ['c']
    assert desk.ran == ['git status -s', 'git log']
    assert desk.loaded == [
        (
            'Use git.\n\n[Commands that need no approval now: git status *, git log]',
            {'commands': ['git status *', 'git log'], 'by': 'code'},
        )
    ]


@pytest.mark.parametrize(
    'call',
    [
        run('git status', env={'GIT_DIR': '/tmp'}),
        run('git status; rm x'),
        run('git status $(rm x)'),
        run('git status\nrm x'),
        run('GIT_DIR=/tmp git status'),
        run('cd /tmp && git status'),
        run('git  -c core.fsmonitor=x status'),
        run('./git status'),
        run('git status > x'),
        run('git status *'),
    ],
)
async def test_a_grant_is_for_the_plain_command_and_nothing_beside_it(
    skills: Callable[[str], Path], call: ToolCallPart
) -> None:
    """Compound commands, environments and other arguments ask, whatever was granted."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)'), grants=True))
    assert ids(await desk.go(LOAD, call)) == ['run']
    assert desk.ran == []


@pytest.mark.parametrize('gates', [{}, {'execute': False}, {'write_todos': True}])
async def test_a_tool_that_asks_by_itself_takes_grants_as_a_gate_in_code_does(
    skills: Callable[[str], Path], gates: dict[str, Any]
) -> None:
    """Where only `requires_approval` makes `execute` wait, loading a skill that names commands asks, shows them, and
    grants them after a yes; nothing else runs."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')), gates=gates, marks=True)
    [question] = await desk.go(LOAD, run('git status'), run('git push', 'other'))
    assert (question.tool, desk.ran) == ('load_skill', [])
    assert 'git status *' in render_approval(question)
    assert ids(await desk.answer(load=Approve())) == ['other']
    assert desk.ran == ['git status']
    assert desk.loaded[0][1] == {'commands': ['git status *'], 'by': 'person'}


async def test_a_tool_that_asks_by_itself_asks_on_after_a_no(skills: Callable[[str], Path]) -> None:
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')), gates={}, marks=True)
    assert ids(await desk.go(LOAD, run('git status'))) == ['load']
    assert ids(await desk.answer(load=Deny('no'))) == ['run']
    assert desk.ran == []


async def test_a_person_grants_at_load(skills: Callable[[str], Path]) -> None:
    """Without grants in code a person is asked when the skill is loaded and sees the commands; they run after a yes,
    also in another process, and nothing else does."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*) Bash(git diff:*) Read')))
    [pending] = await desk.go(LOAD)
    assert render_approval(pending) == (
        'Tool: load_skill\nArgument name: git\nPreview (call):\n'
        "  | With the skill 'git', these commands run without asking for the rest of this conversation:\n"
        '  |   git status *\n  |   git diff *'
    )
    assert await desk.answer(load=Approve()) == []
    assert desk.loaded[0][1] == {'commands': ['git status *', 'git diff *'], 'by': 'person'}
    assert ids(await desk.go(run('git status', 'a'), run('git diff x', 'b'), run('git push', 'c'))) == ['c']
    assert desk.ran == ['git status', 'git diff x']


async def test_a_person_who_denies_grants_nothing(skills: Callable[[str], Path]) -> None:
    """A skill whose load was denied is not loaded and grants nothing."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')))
    await desk.go(LOAD)
    desk.steps.append(run('git status'))
    assert ids(await desk.answer(load=Deny('no'))) == ['run']
    assert desk.loaded == [('no', None)]


async def test_a_raw_approval_loads_the_skill_and_grants_nothing(skills: Callable[[str], Path]) -> None:
    """An approval that does not say what was shown lets the skill be loaded, and no commands run."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')))
    await desk.go(LOAD)
    desk.steps.append(run('git status'))
    assert ids(await desk.resume(DeferredToolResults(approvals={'load': ToolApproved()}))) == ['run']
    assert desk.loaded == [('Use git.', None)]


async def test_an_edit_to_another_skill_asks_for_what_that_one_names(
    skills: Callable[[str], Path], write_skill: WriteSkill
) -> None:
    """A yes is for the commands that were shown: where a person loads another skill instead, that one is shown first."""
    directory = skills('Bash(git status:*)')
    write_skill('other', 'description: x\nallowed-tools: Bash(rm:*)', 'Remove.')
    desk = Desk(directory)
    await desk.go(LOAD)
    [pending] = await desk.answer(load=Edit({'name': 'other'}))
    assert pending.preview is not None
    assert pending.preview.text.endswith('\n  rm *')
    assert await desk.answer(load=Approve()) == []
    assert await desk.go(run('rm x')) == []
    assert desk.ran == ['rm x']


async def test_commands_that_change_while_a_person_decides_are_shown_again(skills: Callable[[str], Path]) -> None:
    """A yes is not for commands that the file has named since."""
    directory = skills('Bash(git status:*) Bash(git diff:*)')
    desk = Desk(directory)
    await desk.go(LOAD)
    rewrite(directory, 'Bash(git diff:*) Bash(rm:*)')
    [pending] = await desk.answer(load=Approve())
    assert pending.preview is not None
    assert pending.preview.text.endswith('\n  git diff *\n  rm *')
    assert await desk.answer(load=Approve()) == []
    assert ids(await desk.go(run('git diff', 'a'), run('git status', 'b'))) == ['b']


async def test_a_file_that_asks_for_more_since_it_was_found_is_not_granted_more(
    skills: Callable[[str], Path],
) -> None:
    """What is granted stood in the frontmatter when the directory was looked at and stands there when it is loaded."""
    directory = skills('Bash(git status:*) Bash(git diff:*)')
    desk = Desk()
    room = Skills([SkillDirectory(directory, grants=True)])
    await room.catalog()
    rewrite(directory, 'Bash(git diff:*) Bash(rm:*)')
    desk.extra = {'capabilities': [room]}
    assert ids(await desk.go(LOAD, run('git diff', 'a'), run('rm x', 'b'))) == ['b']
    assert desk.loaded[0][1] == {'commands': ['git diff *'], 'by': 'code'}


@pytest.mark.parametrize('grants', [True, None])
async def test_a_frontmatter_that_changed_after_the_load_grants_no_more_and_no_longer(
    skills: Callable[[str], Path], grants: bool | None
) -> None:
    """After a restart only what was shown at load and still stands in the frontmatter runs without asking."""
    directory = skills('Bash(git status:*) Bash(git diff:*)')
    desk = Desk(SkillDirectory(directory, grants=grants))
    await desk.go(LOAD)
    if grants is None:
        await desk.answer(load=Approve())
    rewrite(directory, 'Bash(git diff:*) Bash(rm:*)')
    assert ids(await desk.go([run('git diff', 'a'), run('rm x', 'b'), run('git status', 'c')])) == ['b', 'c']
    assert desk.ran == ['git diff']


@pytest.mark.parametrize('now', [None, False])
async def test_what_code_granted_ends_when_the_code_grants_no_more(
    skills: Callable[[str], Path], now: bool | None
) -> None:
    """A version made under `grants=True` that is resumed by code without it grants nothing."""
    directory = skills('Bash(git status:*)')
    desk = Desk(SkillDirectory(directory, grants=True))
    await desk.go(LOAD)
    desk.sources = (SkillDirectory(directory, grants=now),)
    assert ids(await desk.go(run('git status'))) == ['run']


async def test_what_a_person_granted_ends_where_code_forbids_it(skills: Callable[[str], Path]) -> None:
    """`grants=False` takes effect on conversations in which a person said yes before."""
    directory = skills('Bash(git status:*)')
    desk = Desk(directory)
    await desk.go(LOAD)
    await desk.answer(load=Approve())
    desk.sources = (SkillDirectory(directory, grants=False),)
    assert ids(await desk.go(run('git status'))) == ['run']


async def test_code_can_refuse_grants_without_asking(skills: Callable[[str], Path]) -> None:
    """With `grants=False` nobody is asked at load, and nothing is granted."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)'), grants=False))
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']
    assert desk.loaded == [('Use git.', None)]


@pytest.mark.parametrize('gates', [{}, {'write_todos': True}, {'execute': False}])
async def test_no_grant_is_requested_if_no_command_needs_approval(
    skills: Callable[[str], Path], gates: dict[str, Any]
) -> None:
    """Where commands run without asking anyway, a load asks nobody and grants nothing."""
    desk = Desk(skills('Bash(git status:*)'), gates=gates)
    assert await desk.go(LOAD, run('git status')) == []
    assert desk.loaded == [('Use git.', None)]


async def test_approval_of_load_skill_is_no_grant_if_no_command_needs_approval(skills: Callable[[str], Path]) -> None:
    """The preview of a load says nothing of grants where there is nothing to grant."""
    desk = Desk(skills('Bash(git status:*)'), gates={'load_skill': True})
    [pending] = await desk.go(LOAD)
    assert pending.preview is None


async def test_a_gate_on_load_skill_shows_the_grant_as_well(skills: Callable[[str], Path]) -> None:
    """Where loads wait anyway, one approval is for both, and the commands are shown with it."""
    desk = Desk(skills('Bash(git status:*)'), gates={'load_skill': True, 'execute': True})
    [pending] = await desk.go(LOAD)
    assert pending.preview is not None
    assert pending.preview.text.endswith('\n  git status *')
    assert await desk.answer(load=Approve()) == []
    assert await desk.go(run('git status')) == []


@pytest.mark.parametrize('args', [{'name': 'git', 'file': 'SKILL.md'}, {'name': 'plain'}])
async def test_loads_without_a_grant_have_no_preview(
    skills: Callable[[str], Path], write_skill: WriteSkill, args: dict[str, Any]
) -> None:
    """Nothing is shown of grants for a file of a skill, or a skill that names no command."""
    write_skill('plain')
    desk = Desk(skills('Bash(git status:*)'), gates={'load_skill': True, 'execute': True})
    [pending] = await desk.go(ToolCallPart('load_skill', args, tool_call_id='load'))
    assert pending.preview is None


async def test_a_skill_that_cannot_be_read_any_more_has_no_preview(skills: Callable[[str], Path]) -> None:
    """What is wrong with the file is told by the load itself."""
    directory = skills('Bash(git status:*)')
    room = Skills([directory])
    await room.catalog()
    (directory / 'git/SKILL.md').write_text('no frontmatter')
    desk = Desk(gates={'load_skill': True, 'execute': True})
    desk.extra = {'capabilities': [room]}
    [pending] = await desk.go(LOAD)
    assert pending.preview is None


async def test_a_frontmatter_that_names_nothing_any_more_grants_nothing(skills: Callable[[str], Path]) -> None:
    """A skill whose file lost its `allowed-tools` since it was found is loaded without a grant."""
    directory = skills('Bash(git status:*)')
    room = Skills([SkillDirectory(directory, grants=True)])
    await room.catalog()
    (directory / 'git/SKILL.md').write_text('---\nname: git\n---\nUse git.')
    desk = Desk()
    desk.extra = {'capabilities': [room]}
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']
    assert desk.loaded == [('Use git.', None)]


async def test_a_file_that_is_a_link_out_of_the_directory_is_granted_by_a_person_only(
    skills: Callable[[str], Path], tmp_path: Path
) -> None:
    """`grants=True` is for files in that directory, not for one of another directory that a link leads to."""
    other = skills('Bash(rm:*)')
    (tmp_path / 'granting/git').mkdir(parents=True)
    (tmp_path / 'granting/git/SKILL.md').symlink_to(other / 'git/SKILL.md')
    granting = SkillDirectory(tmp_path / 'granting', grants=True, scope='project')
    desk = Desk(granting, SkillDirectory(other, scope='user'))
    assert ids(await desk.go(LOAD, run('rm x'))) == ['run']
    assert desk.ran == []


async def test_of_two_skills_of_one_name_the_one_in_use_counts(
    skills: Callable[[str], Path], write_skill: WriteSkill
) -> None:
    """A grant to one skill is none to another of its name, and a nearer one without a grant hides one that has it."""
    near, far = (
        skills('Bash(rm:*)'),
        write_skill('git', 'description: x\nallowed-tools: Bash(git status:*)', root='far'),
    )
    desk = Desk(SkillDirectory(far.parent, scope='user', grants=True))
    await desk.go(LOAD)
    desk.sources = (near, SkillDirectory(far.parent, scope='user', grants=True))
    assert ids(await desk.go([run('rm x', 'a'), run('git status', 'b')])) == ['a', 'b']


async def test_a_skill_found_by_discover_skills_is_no_skill_of_code(skills: Callable[[str], Path]) -> None:
    """Frontmatter stays frontmatter when its `Skill` object is passed on: a person is asked."""
    found = discover_skills([skills('Bash(git status:*)')]).skills['git']
    assert ids(await Desk(found).go(LOAD, run('git status'))) == ['load']


async def test_commands_that_are_written_in_code_need_no_person() -> None:
    """The `allowed_tools` of a skill made in code are code: its commands run, a bare tool name grants nothing."""
    skill = Skill('git', 'x', body='Use git.', allowed_tools=('execute', 'execute(git status)'))
    desk = Desk(skill)
    assert ids(await desk.go(LOAD, run('git status', 'a'), run('rm x', 'b'))) == ['b']
    assert desk.ran == ['git status']


async def test_files_of_a_skill_of_code_do_not_add_to_its_commands(skills: Callable[[str], Path]) -> None:
    """A skill made in code that reads its body from a file is granted what the code names, not what the file does."""
    folder = skills('Bash(rm:*)') / 'git'
    desk = Desk(Skill('git', 'x', directory=folder, allowed_tools=('execute(git status)',)))
    assert ids(await desk.go(LOAD, run('git status', 'a'), run('rm x', 'b'))) == ['b']


@pytest.mark.parametrize('grants', [True, None])
async def test_a_skill_that_the_run_could_change_grants_nothing(
    skills: Callable[[str], Path], grants: bool | None
) -> None:
    """Where file tools reach the skill, an agent could have written it: nobody is asked, nothing is granted."""
    directory = skills('Bash(git status:*)')
    deps = DeepAgentDeps(backend=LocalBackend(directory.parent))
    desk = Desk(SkillDirectory(directory, grants=grants), deps=deps)
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']


async def test_a_skill_of_a_backend_grants_nothing() -> None:
    """An agent may have written what is in a backend: nobody is asked, nothing is granted."""
    document = b'---\nname: git\ndescription: x\nallowed-tools: Bash(git status:*)\n---\nUse git.'
    deps = DeepAgentDeps(backend=StateBackend({'/skills/git/SKILL.md': document.decode()}))
    desk = Desk(BackendSkills('/skills', trusted=True), deps=deps)
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']


@pytest.mark.parametrize('gates', [{'execute': ApprovalRule(deny=['rm *'])}, {'execute': True}])
async def test_a_grant_never_lifts_what_a_rule_denies(skills: Callable[[str], Path], gates: dict[str, Any]) -> None:
    """A rule's `deny` holds for granted commands."""
    desk = Desk(SkillDirectory(skills('Bash(rm:*)'), grants=True), gates=gates)
    assert await desk.go(LOAD, run('rm x')) == []
    assert desk.ran == ([] if isinstance(gates['execute'], ApprovalRule) else ['rm x'])


@pytest.mark.parametrize('grants', [True, None])
async def test_a_skill_of_a_subagent_lifts_nothing_that_its_parent_asks_for(
    skills: Callable[[str], Path], grants: bool | None
) -> None:
    """In a subagent the parent's gate stays: a load asks nobody, and commands wait whatever was granted."""
    desk = Desk()
    source = SkillDirectory(skills('Bash(git status:*)'), grants=grants)
    model = ScriptedModel(LOAD, run('git status'), 'done')
    kid = Subagent('kid', 'x', model=model, tools=[desk.execute], skills=[source])
    desk.extra = {'subagents': [kid]}
    waiting = await desk.go(ToolCallPart('task', {'subagent': 'kid', 'description': 'x'}, tool_call_id='t'))
    assert ids(waiting) == ['t/run']
    assert desk.ran == []


async def test_a_subagent_with_a_gate_of_its_own_asks_a_person_at_load(skills: Callable[[str], Path]) -> None:
    """Where the gate is the subagent's own, a person grants within it, and the answer goes back there."""
    desk = Desk(gates={})
    model = ScriptedModel(LOAD, run('git status'), 'done')
    kid = Subagent(
        'kid', 'x', model=model, tools=[desk.execute], skills=[skills('Bash(git status:*)')], interrupt_on=GATES
    )
    desk.extra = {'subagents': [kid]}
    [pending] = await desk.go(ToolCallPart('task', {'subagent': 'kid', 'description': 'x'}, tool_call_id='t'))
    assert (pending.id, pending.path) == ('t/load', ('kid',))
    assert await desk.answer(**{'t/load': Approve()}) == []
    assert desk.ran == ['git status']


async def test_metadata_that_no_load_wrote_grants_nothing(skills: Callable[[str], Path]) -> None:
    """A history says only what was granted: what the skill does not name, or is written otherwise, is no grant."""
    metadata: list[Any] = [
        {'skill': 'git', 'grants': {'commands': ['rm *'], 'by': 'person'}},
        {'skill': 'other', 'grants': {'commands': ['git status *'], 'by': 'person'}},
        {'skill': ['git'], 'grants': {'commands': ['git status *'], 'by': 'person'}},
        {'skill': 'git', 'grants': {'commands': ['git status *'], 'by': 'nobody'}},
        {'skill': 'git', 'grants': ['git status *']},
        {'skill': 'git'},
        ['skill'],
    ]
    directory = skills('Bash(git status:*)')
    for each in metadata:
        part = ToolReturnPart('load_skill', 'x', tool_call_id='1', metadata=each)
        desk = Desk(directory)
        desk.conversation = Conversation(messages=[ModelRequest(parts=[part])])
        assert ids(await desk.go([run('git status', 'a'), run('rm x', 'b')])) == ['a', 'b']


async def test_a_skill_that_was_loaded_again_has_what_it_was_granted_last(skills: Callable[[str], Path]) -> None:
    """The last load counts: one without a grant takes back what an earlier one had."""
    directory = skills('Bash(git status:*)')
    desk = Desk(SkillDirectory(directory, grants=True))
    await desk.go(LOAD)
    (directory / 'git/SKILL.md').write_text('---\nname: git\ndescription: x\n---\nUse it otherwise.')
    await desk.go(LOAD)
    rewrite(directory, 'Bash(git status:*)')
    assert ids(await desk.go(run('git status'))) == ['run']


def test_grants_need_trust() -> None:
    """A directory that nobody vouches for cannot grant."""
    with pytest.raises(ValueError, match='cannot have grants'):
        SkillDirectory('x', trusted=False, grants=True)


async def test_a_run_without_approvals_has_no_grants_by_a_person(skills: Callable[[str], Path]) -> None:
    """Without a gate there is nothing to lift; a grant of code is noted all the same."""
    model = ScriptedModel(LOAD, 'done')
    agent = Agent(model, capabilities=[Skills([SkillDirectory(skills('Bash(git status:*)'), grants=True)])])
    result = await agent.run('go')
    [returned] = model.requests[-1].tool_returns
    assert (result.output, (returned.metadata or {})['grants']['by']) == ('done', 'code')
    assert Approvals().may_require_approval('execute') is False


@pytest.mark.parametrize('by', ['code', 'person'])
async def test_a_grant_is_in_the_version_and_in_the_audit_record(skills: Callable[[str], Path], by: Any) -> None:
    """What was granted, and by whom, is in the messages of the version and in the audit record of the run; a resumed
    version goes on with it."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)'), grants=by == 'code' or None))
    records = MemoryRepository(AuditRecord, fields=AUDIT_FIELDS)
    desk.extra = {'capabilities': [Audit(records)]}
    desk.steps += [LOAD, 'loaded', run('git status'), 'done']
    async with open_store('memory:') as store:
        agent = VersionedAgent(desk.agent(), store)
        version = await (await agent.create()).advance('go')
        if by == 'person':
            [pending] = version.pending
            version = await version.resume({pending.id: Approve()})
        [metadata] = [
            part.metadata
            for message in await version.messages()
            for part in message.parts
            if isinstance(part, ToolReturnPart)
        ]
        assert metadata is not None
        assert metadata['grants'] == {'commands': ['git status *'], 'by': by}
        grant = AuditedGrant(skill='git', commands=['git status *'], by=by)
        assert [each.grants for each in (await records.list()).items][-1] == [grant]
        assert version.run_id is not None
        assert (await audit_of_run(store, version.run_id)).grants == [grant]
        version = await version.advance('on')
        assert (version.pending, desk.ran) == ([], ['git status'])
        assert version.run_id is not None
        assert (await audit_of_run(store, version.run_id)).grants == []
