"""The tools: each one calls the functions of the routes of `/api`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from mcp_types import InputRequiredResult, Tool, ToolAnnotations
from pydantic import BaseModel

from pydantic_deep.server._api_keys import KeyScope
from pydantic_deep.server._deletion import deleted_if_refused
from pydantic_deep.server._run_start import start_run
from pydantic_deep.server.access._ownership import Access, ServedVersion
from pydantic_deep.server.http._errors import ServerError
from pydantic_deep.server.routes import _approvals, _conversations, _turns, _versions
from pydantic_deep.server.schemas._approvals import Answer, pending_call
from pydantic_deep.server.schemas._conversations import unfinished_ids
from pydantic_deep.server.schemas._runs import NewTurn
from pydantic_deep.server.schemas._versions import HeadChange
from pydantic_deep.versions import TurnOptions

from ._call import Call
from ._elicitation import continued_run, wait_and_ask
from ._runs import HOW_TO_ANSWER, run_result
from ._shapes import (
    AnswerArguments,
    Answered,
    Approvals,
    CancelArguments,
    ChangedFile,
    DiffArguments,
    DiffResult,
    ListApprovalsArguments,
    Log,
    LogArguments,
    LoggedConversation,
    LoggedVersion,
    RewindArguments,
    Rewound,
    RunArguments,
    RunIdArguments,
    RunResult,
    schema_of,
)
from ._tasks import CreatedTask, finish

MAX_DIFF_CHARS = 40_000
"""Maximum length of all diffs of a result together, about 10,000 tokens. The resources have whole files."""


Result: TypeAlias = BaseModel | InputRequiredResult | CreatedTask


@dataclass(frozen=True, kw_only=True)
class ServedTool:
    """A tool and the function that executes it."""

    name: str
    description: str
    scope: KeyScope
    arguments: type[BaseModel]
    execute: Callable[[Call, Any], Awaitable[Result]]
    annotations: ToolAnnotations

    def check(self, access: Access) -> None:
        """Check that a caller may call the tool.

        Raises:
            ServerError: The key lacks the scope, or only people may answer approvals.
        """
        if not access.has(self.scope):
            raise ServerError('forbidden', f'This requires a key with the scope `{self.scope}`.')
        if self.name == 'answer_approval' and not access.state.settings.mcp_answers:
            raise ServerError('forbidden', f'Only the user can answer approvals: {HOW_TO_ANSWER}.')

    def is_offered(self, access: Access) -> bool:
        """Return whether a caller may call the tool."""
        try:
            self.check(access)
        except ServerError:
            return False
        return True

    def definition(self) -> Tool:
        """Return the tool as clients see it. It has no schema of its result, which few clients use and all pay for."""
        return Tool(
            name=self.name,
            description=self.description,
            input_schema=schema_of(self.arguments),
            annotations=self.annotations,
        )


async def _run(call: Call, arguments: RunArguments) -> Result:
    run_id = await continued_run(call) or await _begin(call.access, arguments)
    return await finish(call, run_id, seconds=arguments.wait_seconds)


async def _begin(access: Access, arguments: RunArguments) -> str:
    version = await _base(access, arguments)
    own = version.record.agent_name
    if arguments.agent not in (None, own):
        raise ServerError('invalid', f'The conversation is one of the agent {own!r}. Omit `agent`, or start a new one.')
    turn = NewTurn(prompt=arguments.prompt, branch=arguments.branch)
    is_new = arguments.conversation is None and arguments.from_version is None
    async with deleted_if_refused(access.state, version.conversation_id if is_new else None):
        return (await start_run(access, version, _turns.options_from(access, version, turn))).id


async def _base(access: Access, arguments: RunArguments) -> ServedVersion:
    """Return the version from which a run starts: a given one, the head of a conversation, or a new root."""
    if arguments.conversation is not None:
        return await access.version_in(await access.conversation(arguments.conversation), arguments.from_version)
    if arguments.from_version is not None:
        return await access.version(arguments.from_version)
    await access.state.runs.check_capacity(access.caller.account)  # before an empty conversation is created
    agents = [name for name in access.state.agents if access.may_use(name)]
    listed = ', '.join(agents) or 'none'
    if arguments.agent is None and len(agents) != 1:
        raise ServerError('invalid', f'Name the `agent` of a new conversation. Agents: {listed}.')
    if arguments.agent is not None and arguments.agent not in agents:
        raise ServerError('not_found', f'No agent has the name {arguments.agent!r}. Agents: {listed}.')
    return await access.create_conversation(arguments.agent or agents[0])


async def _get_run(call: Call, arguments: RunIdArguments) -> Result:
    run_id = await continued_run(call) or arguments.run
    return await finish(call, run_id, seconds=arguments.wait_seconds)


async def _resume_run(call: Call, arguments: RunIdArguments) -> Result:
    run_id = await continued_run(call) or await _resume(call.access, arguments.run)
    return await finish(call, run_id, seconds=arguments.wait_seconds)


async def _resume(access: Access, run_id: str) -> str:
    """Resume a suspended run, or the turn of a paused one, and return the run that continues."""
    run = await _turns.read_run(run_id, access)
    if run.state != 'awaiting_approval' or run.version_id is None:
        return (await _turns.resume_run(run_id, access)).id
    return (await start_run(access, await access.version(run.version_id), TurnOptions())).id


async def _cancel_run(call: Call, arguments: CancelArguments) -> Result:
    return run_result(call.access, await _turns.cancel_run(arguments.run, call.access))


async def _list_approvals(call: Call, arguments: ListApprovalsArguments) -> Result:
    page = await _approvals.list_approvals(call.access, conversation=arguments.conversation, limit=200)
    return Approvals(approvals=[pending_call(approval) for approval in page.items])


async def _answer_approval(call: Call, arguments: AnswerArguments) -> Result:
    access, can_resume = call.access, call.access.has('run')
    run_id = await continued_run(call)
    if run_id is None:
        answer = Answer.model_validate(arguments.model_dump(exclude={'approval', 'wait_seconds'}))
        run_id = (await _approvals.answer_approval(arguments.approval, answer, access, resume=can_resume)).run_id
    run: RunResult | None = None
    if run_id is not None:
        result = await wait_and_ask(call, run_id, seconds=arguments.wait_seconds)
        if isinstance(result, InputRequiredResult):
            return result
        run = result
    note = 'Other approvals of this version are pending.' if can_resume else 'A key with the scope `run` can resume it.'
    status = (await _approvals.read_approval(arguments.approval, access)).status
    return Answered(approval=arguments.approval, status=status, run=run, next=note if run is None else None)


async def _log(call: Call, arguments: LogArguments) -> Result:
    limit, cursor = arguments.limit, arguments.cursor
    if arguments.conversation is None:
        found = await _conversations.list_conversations(call.access, limit=limit, cursor=cursor)
        conversations = [
            LoggedConversation(
                conversation=item.id, agent=item.agent, name=item.name, head=item.head, created_at=item.created_at
            )
            for item in found.items
        ]
        return Log(conversations=conversations, cursor=found.cursor)
    own = await call.access.conversation(arguments.conversation)
    # Read before the versions, so that a run which ends in between is in one of the two.
    active = None if cursor else await unfinished_ids(call.access.state, own.id)
    page = await _versions.list_versions(
        arguments.conversation, call.access, limit=limit, cursor=cursor, steps=arguments.steps
    )
    versions = [
        LoggedVersion(
            version=item.id,
            parent=item.parent_id,
            run=item.run_id,
            kind=item.kind,
            state=item.state,
            branch=item.branch,
            prompt=item.prompt,
            files_changed=item.files_changed,
            is_head=item.is_head,
            created_at=item.created_at,
        )
        for item in page.items
    ]
    return Log(versions=versions, active_runs=active, cursor=page.cursor)


async def _diff(call: Call, arguments: DiffArguments) -> Result:
    found = await _versions.diff_versions(arguments.version, call.access, arguments.to)
    left, omitted, files = MAX_DIFF_CHARS, 0, list[ChangedFile]()
    for file in found.files:
        size = len(file.diff or '')
        is_shown = size <= left
        left -= size if is_shown else 0
        omitted += not is_shown
        files.append(ChangedFile(path=file.path, kind=file.kind, diff=file.diff if is_shown else None))
    note = (
        f'The diffs of {omitted} files are omitted: together they would be too long. Read the resources of the files.'
    )
    return DiffResult(
        before=found.before,
        after=found.after,
        files=files,
        messages_added=len(found.messages_added),
        messages_removed=len(found.messages_removed),
        note=note if omitted else None,
    )


async def _rewind(call: Call, arguments: RewindArguments) -> Result:
    change = HeadChange(version=arguments.version)
    moved = await _versions.move_head(arguments.conversation, change, call.access)
    return Rewound(conversation=moved.conversation_id, head=moved.id)


_READS: Final = ToolAnnotations(read_only_hint=True, open_world_hint=False)
_WORKS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=False)
_WAITS: Final = ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True)
_CHANGES: Final = ToolAnnotations(
    read_only_hint=False, destructive_hint=True, idempotent_hint=True, open_world_hint=False
)

TOOLS: Final = {
    tool.name: tool
    for tool in (
        ServedTool(
            name='run',
            description='Give an agent a task and wait for its answer. Files and dialogue become a version.',
            scope='run',
            arguments=RunArguments,
            execute=_run,
            annotations=_WORKS,
        ),
        ServedTool(
            name='get_run',
            description='Wait for a run that has not ended, and return it.',
            scope='run',
            arguments=RunIdArguments,
            execute=_get_run,
            annotations=_WAITS,
        ),
        ServedTool(
            name='resume_run',
            description='Continue a run that is suspended, or whose approvals were answered elsewhere.',
            scope='run',
            arguments=RunIdArguments,
            execute=_resume_run,
            annotations=_WORKS,
        ),
        ServedTool(
            name='cancel_run',
            description='End a run. Its completed work is kept.',
            scope='run',
            arguments=CancelArguments,
            execute=_cancel_run,
            annotations=_CHANGES,
        ),
        ServedTool(
            name='list_approvals',
            description='List calls of agents that need a decision of the user.',
            scope='approve',
            arguments=ListApprovalsArguments,
            execute=_list_approvals,
            annotations=_READS,
        ),
        ServedTool(
            name='answer_approval',
            description="Answer an approval with the user's decision. Show the user `call` first; never decide alone.",
            scope='approve',
            arguments=AnswerArguments,
            execute=_answer_approval,
            annotations=_WORKS,
        ),
        ServedTool(
            name='log',
            description='List conversations, or the versions and active runs of one, newest first. Finds a run after a lost call.',
            scope='run',
            arguments=LogArguments,
            execute=_log,
            annotations=_READS,
        ),
        ServedTool(
            name='diff',
            description='Compare the files of two versions.',
            scope='run',
            arguments=DiffArguments,
            execute=_diff,
            annotations=_READS,
        ),
        ServedTool(
            name='rewind',
            description='Go back to a version of a conversation. Later versions are kept.',
            scope='run',
            arguments=RewindArguments,
            execute=_rewind,
            annotations=_CHANGES,
        ),
    )
}
"""The tools by name."""
