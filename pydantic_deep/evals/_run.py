"""The tasks of an evaluation: run a case with an agent, or replay it with the recorded responses."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, TypeAlias

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.models import Model, infer_model
from pydantic_ai.providers import Provider, infer_provider_class

from pydantic_deep._agent_imports import AnyAgent
from pydantic_deep.approvals import Decision, Deny, PendingApproval
from pydantic_deep.audit import redact
from pydantic_deep.mcp import McpServers
from pydantic_deep.store import VersionFilter, open_store
from pydantic_deep.versions import AgentVersion, Replay, TurnOptions, VersionedAgent
from pydantic_deep_backends import BackendProtocol, StateBackend, digest_of

from ._case import AskedCall, TurnCase, TurnResult, TurnUsage
from ._turn_rows import TurnRows
from .errors import CaseError

CaseTask: TypeAlias = Callable[[TurnCase], Awaitable[TurnResult]]
"""Runs a case: the task of an evaluation."""

SPENT: ContextVar[list[TurnUsage] | None] = ContextVar('spent', default=None)
"""Receives the usage of a turn that ends with an error."""

NOT_ANSWERED = 'Nobody answers in this evaluation. Continue without this call.'
"""The result that the model sees for a call that needs approval and has no recorded answer."""


def run_case(
    agent: AnyAgent,
    *,
    model: Model | str | None = None,
    make_deps: Callable[[], Any] | None = None,
    make_backend: Callable[[Path], BackendProtocol] | None = None,
) -> CaseTask:
    """Return a task that runs the turn of each case with an agent.

    The tools of the agent run. Those that act on files act on a copy of the files of the case. If others have effects
    elsewhere, pass an agent for tests.

    Args:
        agent: The agent. Of a `VersionedAgent`, only the agent and its deps are used.
        model: The model, instead of that of the agent.
        make_deps: Creates the deps of each run; by default as `VersionedAgent` does.
        make_backend: Creates the backend for a temporary directory, such as `SandboxBackend` for an agent that runs
            commands. By default, the files are in memory, and no commands run.

    Raises:
        CaseError: Raised by the task: an MCP server of the agent is not running.
    """

    async def run(case: TurnCase) -> TurnResult:
        async with _opened(case, agent, make_deps) as versions, versions.agent:
            _refuse_missing_servers(versions.agent)
            base = await _base_of(case, versions)
            if make_backend is None:
                return await _run(case, versions, base, model)
            with tempfile.TemporaryDirectory() as directory:
                backend = make_backend(Path(directory))
                await base.checkout(backend=backend)
                [base] = await versions.wrap([base.record], backend=backend)
                return await _run(case, versions, base, model)

    return run


def _refuse_missing_servers(agent: AbstractAgent[Any, Any]) -> None:
    """Raise if an MCP server of an agent is not running: models are not compared by answers without its tools."""
    capabilities: list[AbstractCapability[Any]] = []
    agent.root_capability.apply(capabilities.append)
    servers = [each for each in capabilities if isinstance(each, McpServers)]
    errors = [error for each in servers for error in each.errors.items()]
    if errors:
        sentences = [f'The MCP server {name} is not running: {error}' for name, error in errors]
        raise CaseError(str(redact(' '.join(sentences))))


async def _run(
    case: TurnCase, versions: VersionedAgent[Any, Any], base: AgentVersion[Any, Any], model: Model | str | None
) -> TurnResult:
    asked: list[AskedCall] = []
    try:
        version = await base.run(TurnOptions(prompt=case.prompt, model=model))
        while version.pending:
            answers = {pending.id: _answer(pending, case, asked) for pending in version.pending}
            version = await version.run(TurnOptions(answers=answers, by='evaluation', model=model))
    except Exception:
        if (spent := SPENT.get()) is not None:
            spent.append(await _usage_since(versions, base))
        raise
    return await result_of(base, version, asked)


async def _usage_since(versions: VersionedAgent[Any, Any], base: AgentVersion[Any, Any]) -> TurnUsage:
    """Return the usage of a conversation since a version, up to the end of its last turn, which may have failed."""
    newest = await versions.store.versions(VersionFilter(conversation_id=base.conversation_id), limit=1)
    [version] = await versions.wrap(newest)
    return _usage(version, base)


def _answer(pending: PendingApproval, case: TurnCase, asked: list[AskedCall]) -> Decision:
    """Return the recorded answer to a call, and add the call to those asked for.

    That is the answer to the same call, else to the next call of the same tool that has not been asked for. Edited
    arguments are those of another call, so they count for the same call only.
    """
    call = AskedCall(tool=pending.tool, arguments=dict(pending.arguments), subagents=list(pending.path), answer='deny')
    known = [one for one in case.expected.approvals if (one.tool, one.subagents) == (call.tool, call.subagents)]
    same = [one for one in known if one.arguments == call.arguments]
    number = sum((one.tool, one.subagents) == (call.tool, call.subagents) for one in asked)
    similar = [one for one in known[number : number + 1] if one.answer != 'edit']
    answer = next((one for one in (*same, *similar) if one.answer in pending.decisions), None)
    if answer is None:
        asked.append(call)
        return Deny(NOT_ANSWERED)
    asked.append(call.model_copy(update={'answer': answer.answer, 'value': answer.value}))
    return answer.decision


def replay_case(agent: AnyAgent, *, make_deps: Callable[[], Any] | None = None) -> CaseTask:
    """Return a task that replays the turn of each case with its recorded responses, without a model or a key.

    Tools that declare that they only read, or change files and todos, run on a copy of the files, and their results are
    compared. Results of other tools come from the recording. A subagent whose own model is a name needs the key of its
    provider, or any text in its place, to prepare its requests.

    Args:
        agent: The agent.
        make_deps: Creates the deps of each run; by default as `VersionedAgent` does.
    """

    async def run(case: TurnCase) -> TurnResult:
        replays = await replay_turns(case, agent, make_deps=make_deps, run_tools=case.unrepeatable is not None)
        differences: list[str] = []
        for replay in replays:
            differences += [] if replay.difference is None else [str(replay.difference)]
            unrepeatable = case.unrepeatable or frozenset()
            differences += [
                str(result)
                for result in replay.results
                if (result.response_id, result.tool_call_id) not in unrepeatable
            ]
        return TurnResult(
            output=case.expected.output,
            files=case.expected.files,
            todos=case.expected.todos,
            approvals=case.expected.approvals,
            usage=case.expected.usage,
            differences=differences,
        )

    return run


async def replay_turns(
    case: TurnCase, agent: AnyAgent, *, make_deps: Callable[[], Any] | None, run_tools: bool
) -> list[Replay]:
    """Replay each run of the turn of a case, up to the first request that differs.

    Raises:
        CaseError: The case has no recording.
    """
    async with _opened(case, agent, make_deps) as versions:
        rows = _rows_of(case)
        model = _stand_in(versions.agent.model or rows.end.model)
        run_ids = {run.id for run in rows.runs}
        ends = [
            version
            for version in rows.versions
            if (version.conversation_id, version.kind in ('turn', 'pause')) == (rows.end.conversation_id, True)
            and version.run_id in run_ids
        ]
        replays: list[Replay] = []
        for version in await versions.wrap(ends):
            replays.append(await version.replay(run_tools=run_tools, model=model))
            if replays[-1].difference is not None:
                break
        return replays


def _stand_in(model: Model | str | None) -> Model | None:
    """Return a model that prepares requests as the named one does; `None` if no provider has it.

    If the key of its provider is missing, it has none, and cannot send them.
    """
    if model is None or isinstance(model, Model):
        return model
    try:
        return infer_model(model)
    except (UserError, ValueError):
        pass
    try:
        return infer_model(model, provider_factory=_without_key)
    except (UserError, ValueError):  # the model of a program, such as one for tests
        return None


def _without_key(name: str) -> Provider[Any]:
    provider: Any = infer_provider_class(name)
    return provider(api_key='none')


@asynccontextmanager
async def _opened(
    case: TurnCase, agent: AnyAgent, make_deps: Callable[[], Any] | None
) -> AsyncGenerator[VersionedAgent[Any, Any]]:
    """Open a store in memory with the recorded turn of a case."""
    if isinstance(agent, VersionedAgent):
        agent, make_deps = agent.agent, make_deps or agent.session.make_deps
    async with open_store('memory:') as store:
        if case.rows is not None:
            await case.rows.write(store, case.tree, {digest_of(data): data for data in case.files.values()})
        yield VersionedAgent(agent, store, make_deps=make_deps)


async def _base_of(case: TurnCase, versions: VersionedAgent[Any, Any]) -> AgentVersion[Any, Any]:
    if case.rows is None:
        return await versions.create(backend=StateBackend(case.files))
    [base] = await versions.wrap([await versions.store.version(case.rows.base.id)])
    return base


def _rows_of(case: TurnCase) -> TurnRows:
    if case.rows is None:
        raise CaseError(f'The case {case.name!r} has no `recording.json`, so it can run, but not be replayed.')
    return case.rows


async def result_of(
    base: AgentVersion[Any, Any],
    version: AgentVersion[Any, Any],
    asked: Sequence[AskedCall],
    *,
    omitted: Collection[str] = (),
) -> TurnResult:
    """Return the result of a turn from one version to another, without the omitted files."""
    return TurnResult(
        output=json.loads(version.record.output or 'null'),
        files=await files_of(version, omitted=omitted),
        todos=version.todos,
        approvals=asked,
        usage=_usage(version, base),
    )


def _usage(version: AgentVersion[Any, Any], base: AgentVersion[Any, Any]) -> TurnUsage:
    usage = version.usage - base.usage
    return TurnUsage(requests=usage.requests, tokens=usage.total_tokens, cost=usage.cost)


async def files_of(version: AgentVersion[Any, Any], *, omitted: Collection[str] = ()) -> dict[str, bytes]:
    """Return the contents of the files of a version, without the omitted ones, keyed by path."""
    files = await version.files()
    return {path: await files.read_bytes(path) for path in await version.file_tree() if path not in omitted}
