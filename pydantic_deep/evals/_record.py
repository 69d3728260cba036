"""`record_case`: turns a stored turn into a case."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import PurePosixPath
from typing import Any, Final, cast

from pydantic_ai.messages import TextContent, UserContent

from pydantic_deep._checks import check_object
from pydantic_deep.memory import Memories
from pydantic_deep.store import ApprovalRecord
from pydantic_deep.versions import AgentVersion, VersionedAgent
from pydantic_deep_backends import Tree

from ._case import AskedCall, TurnCase
from ._run import NOT_ANSWERED, files_of, replay_turns, result_of
from ._turn_rows import TurnRows
from .errors import CaseError

MAX_CASE_BYTES: Final = 50_000_000
"""The largest total size of the files before a turn that becomes a case."""

_NAME: Final = re.compile(r'[A-Za-z0-9][A-Za-z0-9._-]*')

_MEMORY_NAME: Final = re.compile(r'[\w.-]+(/[\w.-]+)*', re.ASCII)
"""The names that models can give. Programs can write others."""

_ANSWERS: Final[Mapping[str, str]] = {
    'approved': 'approve',
    'edited': 'edit',
    'denied': 'deny',
    'responded': 'respond',
    'expired': 'deny',
}
_VALUES: Final[Mapping[str, str]] = {'edit': 'args', 'deny': 'reason', 'respond': 'content'}


async def record_case(
    versions: VersionedAgent[Any, Any],
    id: str,
    *,
    name: str | None = None,
    memories: Memories | None = None,
    is_verified: bool = True,
) -> TurnCase:
    """Return the turn that ends with a version as a case. `write_case` writes it to a folder.

    A turn that was paused and resumed is one case, with the answers. If the turn waits for approvals, runs of the case
    deny these calls. The case contains the history before the turn, and all files before it. Of other recorded cases
    among them it has only `case.json`, or each case would contain all earlier ones.

    Args:
        versions: The agent, and the store with the version.
        id: The version that the turn ended with.
        name: The name of the case and its folder. By default, it consists of the first words of the prompt and the end
            of the id.
        memories: The memory of the agent. The case contains its files as they were before the turn.
        is_verified: Whether to replay the case at once with the agent, which also finds the calls whose results depend
            on something outside of the case. Otherwise, replays of the case do not run tools.

    Raises:
        CaseError: The version is not the end of a turn, its files are too large, or the replay is not exact.
        VersionNotFoundError: The store does not have the version.
    """
    check_object('versions', versions, VersionedAgent, 'Pass `VersionedAgent(agent, store)`.')
    record = await versions.store.version(id)
    rows = await TurnRows.read(versions.store, record)
    base, first, end = await versions.wrap([rows.base, rows.first, rows.end])
    prompt = await first.prompt()
    if prompt is None:
        raise CaseError(f'The turn of version {record.id} began without a prompt. Record another one.')
    name = name or _name_of(prompt, record.id)
    if not _NAME.fullmatch(name):
        raise CaseError(
            f'{name!r} cannot be the name of a case. Use letters of ASCII, digits, dots, hyphens and underscores.'
        )
    tree = await base.file_tree()
    omitted = _files_of_cases(tree).difference(tree.diff(await end.file_tree()).changed)
    size = sum(file.size for path, file in tree.items() if path not in omitted)
    if size > MAX_CASE_BYTES:
        raise CaseError(
            f'The turn of version {record.id} began with {size:,} bytes of files, and a case has at most '
            f'{MAX_CASE_BYTES:,}. Record a turn in a smaller directory.'
        )
    began = datetime.fromtimestamp(min(run.started_at for run in rows.runs) / 1e6, UTC)
    memory = {} if memories is None else await memories.at(began)
    if wrong := [name for name in memory if not _MEMORY_NAME.fullmatch(name) or '..' in name]:
        raise CaseError(f'The memory file {wrong[0]!r} cannot be written to a folder. Rename it.')
    case = TurnCase(
        name=name,
        prompt=prompt,
        files=await files_of(base, omitted=omitted),
        executables=frozenset(path for path, file in tree.items() if file.mode == 0o755 and path not in omitted),
        memory_owner=None if memories is None else memories.owner,
        memory=memory,
        expected=await result_of(base, end, _answered(rows), omitted=omitted),
        evaluators=['FilesEqual', 'ApprovalsAsked', *(['TodosCompleted'] if _are_completed(end) else [])],
        agent=record.agent_name,
        model=record.model,
        version=record.id,
        rows=rows,
    )
    return await _verified(case, versions) if is_verified else case


def _files_of_cases(tree: Tree) -> frozenset[str]:
    """Return the files of recorded cases. `case.json` is not one of them, so that their folders stay visible."""
    paths = [PurePosixPath(path) for path in tree]
    folders = {path.parent for path in paths if path.name == 'recording.json' and f'{path.parent}/case.json' in tree}
    return frozenset(
        str(path)
        for path in paths
        if not folders.isdisjoint(path.parent.parents if path.name == 'case.json' else path.parents)
    )


async def _verified(case: TurnCase, versions: VersionedAgent[Any, Any]) -> TurnCase:
    """Replay a case, and return it with its unrepeatable calls."""
    replays = await replay_turns(case, versions.agent, make_deps=versions.session.make_deps, run_tools=True)
    difference = next((replay.difference for replay in replays if replay.difference is not None), None)
    if difference is not None:
        raise CaseError(
            f'The turn of version {case.version} does not replay exactly with this agent: {difference}\n'
            'Record it with the code that ran it, or without verification (`is_verified=False`, `--no-verify`).'
        )
    calls = {(result.response_id, result.tool_call_id) for replay in replays for result in replay.results}
    return replace(case, unrepeatable=frozenset(calls))


def _answered(rows: TurnRows) -> list[AskedCall]:
    """Return the calls that the runs of a turn got answers to, in the order of the answers, and then those that the turn
    waits for. A later answer to these is no part of the turn, and a run of the case denies them.
    """
    waiting = [one for one in rows.approvals if one.version_id == rows.end.id]
    answered = [one for one in rows.approvals if one.status in _ANSWERS and one.resumed_by and one not in waiting]
    answered.sort(key=lambda one: (one.decided_at or one.expires_at or 0, one.id))
    return [
        *(_asked(one, _ANSWERS[one.status], json.loads(one.decision or '{}')) for one in answered),
        *(_asked(one, 'deny', {'reason': NOT_ANSWERED}) for one in waiting),
    ]


def _asked(approval: ApprovalRecord, answer: str, decision: Mapping[str, Any]) -> AskedCall:
    return AskedCall(
        tool=approval.tool_name,
        arguments=json.loads(approval.arguments),
        subagents=json.loads(approval.path),
        answer=cast('Any', answer),
        value=decision.get(_VALUES.get(answer, '')),
    )


def _are_completed(version: AgentVersion[Any, Any]) -> bool:
    return bool(version.todos) and all(todo.status == 'completed' for todo in version.todos)


def _text_of(item: UserContent) -> str:
    return item if isinstance(item, str) else item.content if isinstance(item, TextContent) else ''


def _name_of(prompt: str | Sequence[UserContent], id: str) -> str:
    text = prompt if isinstance(prompt, str) else ' '.join(filter(None, map(_text_of, prompt)))
    words = re.findall(r'[a-z0-9]+', text.lower())[:5]
    return '-'.join([*words, id[-8:]])
