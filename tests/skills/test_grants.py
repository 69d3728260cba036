"""Grants: commands of a loaded skill that run without approval, granted by code or by a person."""

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
    """A person and an agent that is rebuilt for each run, with the conversation stored as JSON in between."""

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
        """Return content and grant metadata of each `load_skill` result."""
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
    """Write a skill `git` with these `allowed-tools`, and return its parent directory."""

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
"""Entries that name no command."""


@pytest.mark.parametrize('allowed', BARE)
@pytest.mark.parametrize('grants', [True, None])
async def test_skill_without_commands_grants_nothing(
    skills: Callable[[str], Path], allowed: str, grants: bool | None
) -> None:
    """Frontmatter never bypasses approval rules in code: a bare tool name in `allowed-tools` grants nothing, even with
    `grants=True`, and no person is asked to grant it."""
    desk = Desk(SkillDirectory(skills(allowed), grants=grants))
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']
    assert (desk.ran, desk.loaded) == ([], [('Use git.', None)])


async def test_other_tools_cannot_be_granted(skills: Callable[[str], Path]) -> None:
    """Only commands can be granted: the name of another tool, with or without brackets, grants nothing."""
    desk = Desk(SkillDirectory(skills('load_skill write_todos(x *) Write'), grants=True), gates={'write_todos': True})
    waiting = await desk.go(LOAD, ToolCallPart('write_todos', {'todos': []}, tool_call_id='todo'))
    assert ids(waiting) == ['todo']


async def test_code_grants_commands_by_pattern(skills: Callable[[str], Path]) -> None:
    """`SkillDirectory(grants=True)` allows the commands of a loaded skill and lists them in the result of the load."""
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
async def test_grant_covers_only_the_plain_command(skills: Callable[[str], Path], call: ToolCallPart) -> None:
    """Compound commands, environment variables and other arguments require approval despite the grant."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)'), grants=True))
    assert ids(await desk.go(LOAD, call)) == ['run']
    assert desk.ran == []


@pytest.mark.parametrize('gates', [{}, {'execute': False}, {'write_todos': True}])
async def test_tool_that_requires_approval_supports_grants(
    skills: Callable[[str], Path], gates: dict[str, Any]
) -> None:
    """If only `requires_approval` gates `execute`, loading a skill with commands requests approval, lists them, and
    grants them once approved. Nothing else runs."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')), gates=gates, marks=True)
    [question] = await desk.go(LOAD, run('git status'), run('git push', 'other'))
    assert (question.tool, desk.ran) == ('load_skill', [])
    assert 'git status *' in render_approval(question)
    assert ids(await desk.answer(load=Approve())) == ['other']
    assert desk.ran == ['git status']
    assert desk.loaded[0][1] == {'commands': ['git status *'], 'by': 'person'}


async def test_denied_load_grants_nothing_for_a_tool_that_requires_approval(skills: Callable[[str], Path]) -> None:
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')), gates={}, marks=True)
    assert ids(await desk.go(LOAD, run('git status'))) == ['load']
    assert ids(await desk.answer(load=Deny('no'))) == ['run']
    assert desk.ran == []


async def test_person_grants_commands_at_load(skills: Callable[[str], Path]) -> None:
    """Without grants in code, a person approves the listed commands when the skill is loaded. They run after the
    approval, in another process too, and nothing else does."""
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


async def test_denied_load_grants_nothing(skills: Callable[[str], Path]) -> None:
    """A skill with a denied load is not loaded and grants nothing."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')))
    await desk.go(LOAD)
    desk.steps.append(run('git status'))
    assert ids(await desk.answer(load=Deny('no'))) == ['run']
    assert desk.loaded == [('no', None)]


async def test_raw_approval_loads_the_skill_and_grants_nothing(skills: Callable[[str], Path]) -> None:
    """An approval without the shown preview loads the skill but grants no commands."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)')))
    await desk.go(LOAD)
    desk.steps.append(run('git status'))
    assert ids(await desk.resume(DeferredToolResults(approvals={'load': ToolApproved()}))) == ['run']
    assert desk.loaded == [('Use git.', None)]


async def test_edit_to_another_skill_requires_approval_of_its_commands(
    skills: Callable[[str], Path], write_skill: WriteSkill
) -> None:
    """An approval covers only the commands that were shown. If a person loads another skill instead, its commands are
    shown first."""
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


async def test_commands_changed_before_the_decision_are_shown_again(skills: Callable[[str], Path]) -> None:
    """An approval does not cover commands added to the file later."""
    directory = skills('Bash(git status:*) Bash(git diff:*)')
    desk = Desk(directory)
    await desk.go(LOAD)
    rewrite(directory, 'Bash(git diff:*) Bash(rm:*)')
    [pending] = await desk.answer(load=Approve())
    assert pending.preview is not None
    assert pending.preview.text.endswith('\n  git diff *\n  rm *')
    assert await desk.answer(load=Approve()) == []
    assert ids(await desk.go(run('git diff', 'a'), run('git status', 'b'))) == ['b']


async def test_file_changed_after_discovery_is_not_granted_more(
    skills: Callable[[str], Path],
) -> None:
    """Granted commands are in the frontmatter both at discovery and at load."""
    directory = skills('Bash(git status:*) Bash(git diff:*)')
    desk = Desk()
    capability = Skills([SkillDirectory(directory, grants=True)])
    await capability.catalog()
    rewrite(directory, 'Bash(git diff:*) Bash(rm:*)')
    desk.extra = {'capabilities': [capability]}
    assert ids(await desk.go(LOAD, run('git diff', 'a'), run('rm x', 'b'))) == ['b']
    assert desk.loaded[0][1] == {'commands': ['git diff *'], 'by': 'code'}


@pytest.mark.parametrize('grants', [True, None])
async def test_frontmatter_changed_after_the_load_limits_the_grant(
    skills: Callable[[str], Path], grants: bool | None
) -> None:
    """After a restart, only commands shown at load that are still in the frontmatter run without approval."""
    directory = skills('Bash(git status:*) Bash(git diff:*)')
    desk = Desk(SkillDirectory(directory, grants=grants))
    await desk.go(LOAD)
    if grants is None:
        await desk.answer(load=Approve())
    rewrite(directory, 'Bash(git diff:*) Bash(rm:*)')
    assert ids(await desk.go([run('git diff', 'a'), run('rm x', 'b'), run('git status', 'c')])) == ['b', 'c']
    assert desk.ran == ['git diff']


@pytest.mark.parametrize('now', [None, False])
async def test_code_grant_ends_when_the_code_no_longer_grants(skills: Callable[[str], Path], now: bool | None) -> None:
    """A version made with `grants=True` grants nothing when resumed by code without it."""
    directory = skills('Bash(git status:*)')
    desk = Desk(SkillDirectory(directory, grants=True))
    await desk.go(LOAD)
    desk.sources = (SkillDirectory(directory, grants=now),)
    assert ids(await desk.go(run('git status'))) == ['run']


async def test_person_grant_ends_when_code_forbids_grants(skills: Callable[[str], Path]) -> None:
    """`grants=False` also applies to conversations with an earlier approval."""
    directory = skills('Bash(git status:*)')
    desk = Desk(directory)
    await desk.go(LOAD)
    await desk.answer(load=Approve())
    desk.sources = (SkillDirectory(directory, grants=False),)
    assert ids(await desk.go(run('git status'))) == ['run']


async def test_code_can_refuse_grants_without_asking(skills: Callable[[str], Path]) -> None:
    """With `grants=False` a load requests no approval and grants nothing."""
    desk = Desk(SkillDirectory(skills('Bash(git status:*)'), grants=False))
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']
    assert desk.loaded == [('Use git.', None)]


@pytest.mark.parametrize('gates', [{}, {'write_todos': True}, {'execute': False}])
async def test_no_grant_is_requested_if_no_command_needs_approval(
    skills: Callable[[str], Path], gates: dict[str, Any]
) -> None:
    """If commands run without approval, a load requests no approval and grants nothing."""
    desk = Desk(skills('Bash(git status:*)'), gates=gates)
    assert await desk.go(LOAD, run('git status')) == []
    assert desk.loaded == [('Use git.', None)]


async def test_approval_of_load_skill_grants_nothing_if_no_command_needs_approval(
    skills: Callable[[str], Path],
) -> None:
    """The preview of a load mentions no grants if there is nothing to grant."""
    desk = Desk(skills('Bash(git status:*)'), gates={'load_skill': True})
    [pending] = await desk.go(LOAD)
    assert pending.preview is None


async def test_gate_on_load_skill_shows_the_grant(skills: Callable[[str], Path]) -> None:
    """If loads require approval, one approval covers the load and the listed commands."""
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
    """The preview mentions no grants for a file of a skill, or for a skill without commands."""
    write_skill('plain')
    desk = Desk(skills('Bash(git status:*)'), gates={'load_skill': True, 'execute': True})
    [pending] = await desk.go(ToolCallPart('load_skill', args, tool_call_id='load'))
    assert pending.preview is None


async def test_unreadable_skill_has_no_preview(skills: Callable[[str], Path]) -> None:
    """The load itself reports the problem with the file."""
    directory = skills('Bash(git status:*)')
    capability = Skills([directory])
    await capability.catalog()
    (directory / 'git/SKILL.md').write_text('no frontmatter')
    desk = Desk(gates={'load_skill': True, 'execute': True})
    desk.extra = {'capabilities': [capability]}
    [pending] = await desk.go(LOAD)
    assert pending.preview is None


async def test_frontmatter_without_commands_grants_nothing(skills: Callable[[str], Path]) -> None:
    """A skill that lost its `allowed-tools` after discovery is loaded without a grant."""
    directory = skills('Bash(git status:*)')
    capability = Skills([SkillDirectory(directory, grants=True)])
    await capability.catalog()
    (directory / 'git/SKILL.md').write_text('---\nname: git\n---\nUse git.')
    desk = Desk()
    desk.extra = {'capabilities': [capability]}
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']
    assert desk.loaded == [('Use git.', None)]


async def test_linked_file_outside_the_directory_is_not_granted_by_code(
    skills: Callable[[str], Path], tmp_path: Path
) -> None:
    """`grants=True` covers the files in that directory, not those that a link leads to."""
    other = skills('Bash(rm:*)')
    (tmp_path / 'granting/git').mkdir(parents=True)
    (tmp_path / 'granting/git/SKILL.md').symlink_to(other / 'git/SKILL.md')
    granting = SkillDirectory(tmp_path / 'granting', grants=True, scope='project')
    desk = Desk(granting, SkillDirectory(other, scope='user'))
    assert ids(await desk.go(LOAD, run('rm x'))) == ['run']
    assert desk.ran == []


async def test_only_the_effective_skill_of_a_name_is_granted(
    skills: Callable[[str], Path], write_skill: WriteSkill
) -> None:
    """A grant to one skill does not cover another of its name, and a shadowed skill grants nothing."""
    near, far = (
        skills('Bash(rm:*)'),
        write_skill('git', 'description: x\nallowed-tools: Bash(git status:*)', root='far'),
    )
    desk = Desk(SkillDirectory(far.parent, scope='user', grants=True))
    await desk.go(LOAD)
    desk.sources = (near, SkillDirectory(far.parent, scope='user', grants=True))
    assert ids(await desk.go([run('rm x', 'a'), run('git status', 'b')])) == ['a', 'b']


async def test_discovered_skill_is_not_granted_like_a_skill_in_code(skills: Callable[[str], Path]) -> None:
    """A `Skill` object from `discover_skills` is still frontmatter: its commands require approval by a person."""
    found = discover_skills([skills('Bash(git status:*)')]).skills['git']
    assert ids(await Desk(found).go(LOAD, run('git status'))) == ['load']


async def test_commands_of_a_skill_in_code_need_no_approval() -> None:
    """The `allowed_tools` of a skill in code are code: its commands run. A bare tool name grants nothing."""
    skill = Skill('git', 'x', body='Use git.', allowed_tools=('execute', 'execute(git status)'))
    desk = Desk(skill)
    assert ids(await desk.go(LOAD, run('git status', 'a'), run('rm x', 'b'))) == ['b']
    assert desk.ran == ['git status']


async def test_files_of_a_skill_in_code_add_no_commands(skills: Callable[[str], Path]) -> None:
    """A skill in code with a body from a file is granted the commands of the code, not those of the file."""
    folder = skills('Bash(rm:*)') / 'git'
    desk = Desk(Skill('git', 'x', directory=folder, allowed_tools=('execute(git status)',)))
    assert ids(await desk.go(LOAD, run('git status', 'a'), run('rm x', 'b'))) == ['b']


@pytest.mark.parametrize('grants', [True, None])
async def test_skill_writable_by_the_run_grants_nothing(skills: Callable[[str], Path], grants: bool | None) -> None:
    """If file tools can write the skill, an agent may have written it: no approval is requested, nothing is granted."""
    directory = skills('Bash(git status:*)')
    deps = DeepAgentDeps(backend=LocalBackend(directory.parent))
    desk = Desk(SkillDirectory(directory, grants=grants), deps=deps)
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']


async def test_backend_skill_grants_nothing() -> None:
    """An agent may have written files in a backend: no approval is requested, nothing is granted."""
    document = b'---\nname: git\ndescription: x\nallowed-tools: Bash(git status:*)\n---\nUse git.'
    deps = DeepAgentDeps(backend=StateBackend({'/skills/git/SKILL.md': document.decode()}))
    desk = Desk(BackendSkills('/skills', trusted=True), deps=deps)
    assert ids(await desk.go(LOAD, run('git status'))) == ['run']


@pytest.mark.parametrize('gates', [{'execute': ApprovalRule(deny=['rm *'])}, {'execute': True}])
async def test_grant_never_overrides_a_denial_rule(skills: Callable[[str], Path], gates: dict[str, Any]) -> None:
    """The `deny` patterns of a rule apply to granted commands too."""
    desk = Desk(SkillDirectory(skills('Bash(rm:*)'), grants=True), gates=gates)
    assert await desk.go(LOAD, run('rm x')) == []
    assert desk.ran == ([] if isinstance(gates['execute'], ApprovalRule) else ['rm x'])


@pytest.mark.parametrize('grants', [True, None])
async def test_skill_of_a_subagent_bypasses_no_gate_of_its_parent(
    skills: Callable[[str], Path], grants: bool | None
) -> None:
    """In a subagent the gate of the parent applies: a load requests no approval, and commands require approval despite
    any grant."""
    desk = Desk()
    source = SkillDirectory(skills('Bash(git status:*)'), grants=grants)
    model = ScriptedModel(LOAD, run('git status'), 'done')
    kid = Subagent('kid', 'x', model=model, tools=[desk.execute], skills=[source])
    desk.extra = {'subagents': [kid]}
    waiting = await desk.go(ToolCallPart('task', {'subagent': 'kid', 'description': 'x'}, tool_call_id='t'))
    assert ids(waiting) == ['t/run']
    assert desk.ran == []


async def test_subagent_with_its_own_gate_requests_approval_at_load(skills: Callable[[str], Path]) -> None:
    """If the gate belongs to the subagent, a person grants within it, and the answer is routed back to it."""
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


async def test_forged_metadata_grants_nothing(skills: Callable[[str], Path]) -> None:
    """Metadata of the history is validated: commands that the skill does not name, or malformed entries, grant
    nothing."""
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


async def test_latest_load_of_a_skill_determines_its_grant(skills: Callable[[str], Path]) -> None:
    """A later load without a grant revokes an earlier grant."""
    directory = skills('Bash(git status:*)')
    desk = Desk(SkillDirectory(directory, grants=True))
    await desk.go(LOAD)
    (directory / 'git/SKILL.md').write_text('---\nname: git\ndescription: x\n---\nUse it otherwise.')
    await desk.go(LOAD)
    rewrite(directory, 'Bash(git status:*)')
    assert ids(await desk.go(run('git status'))) == ['run']


async def test_run_without_approvals_has_no_person_grants(skills: Callable[[str], Path]) -> None:
    """Without a gate there is nothing to grant. A grant by code is recorded anyway."""
    model = ScriptedModel(LOAD, 'done')
    agent = Agent(model, capabilities=[Skills([SkillDirectory(skills('Bash(git status:*)'), grants=True)])])
    result = await agent.run('go')
    [returned] = model.requests[-1].tool_returns
    assert (result.output, (returned.metadata or {})['grants']['by']) == ('done', 'code')
    assert Approvals().may_require_approval('execute') is False


@pytest.mark.parametrize('by', ['code', 'person'])
async def test_grant_is_in_the_version_and_the_audit_record(skills: Callable[[str], Path], by: Any) -> None:
    """The granted commands and the granter are in the messages of the version and in the audit record. A resumed
    version keeps the grant."""
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
