"""A turn that waits, in a file: what `--approvals=pause` writes and `resume` reads, exactly once.

A file is claimed by giving it another name, which only one process can do: `FILE.asking-…` while a person is asked,
`FILE.running-…` once answers were given. A process that dies leaves that name behind, and it says how far it had come.
"""

from __future__ import annotations

import os
import re
import secrets
import shlex
import socket
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self, cast

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_ai import Conversation
from pydantic_core import from_json

from pydantic_deep.approvals import PendingApproval, pending_approvals
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.errors import DeepAgentError

from ._worker import Settings

FORMAT = 'pydantic-deep.paused-turn'
"""What the file says it is."""

FORMAT_VERSION = 1
"""The version of what is written; older ones are read."""

_CLAIMED = re.compile(r'\.(?P<state>asking|running)-(?P<host>[\w.-]+)-(?P<pid>\d+)-(?P<time>\d{8}T\d{6}Z)$')
"""What follows the name of a file that is claimed."""


class UnusablePauseError(DeepAgentError):
    """The file cannot be resumed: it is none of ours, of a newer release, gone, or somebody was faster."""


class PausedTurn(BaseModel):
    """A turn that waits: all that another process needs to go on with it."""

    model_config = ConfigDict(frozen=True, extra='forbid')

    format: Literal['pydantic-deep.paused-turn'] = FORMAT
    """What this is."""
    format_version: int = FORMAT_VERSION
    """The version of the format."""
    task: str
    """What the person wants."""
    settings: Settings
    """The directory, the model, the budget, the skills."""
    conversation: Conversation
    """The messages, the usage so far, and what waits."""
    deps: str
    """What `DeepAgentDeps.to_json` wrote."""

    @classmethod
    def parse(cls, data: bytes, name: str) -> Self:
        """Return the turn that a file holds.

        Args:
            data: The contents of the file.
            name: Its name, for errors.

        Raises:
            UnusablePauseError: They are not what `render` wrote, or a newer release wrote them.
        """
        try:
            document: object = from_json(data)
        except ValueError:
            document = None
        fields = cast('dict[str, object]', document) if isinstance(document, dict) else {}
        version = fields.get('format_version')
        if fields.get('format') != FORMAT or not isinstance(version, int):
            raise UnusablePauseError(f'{name} is no paused turn. Pass a file that `--approvals=pause` has named.')
        if version > FORMAT_VERSION:
            raise UnusablePauseError(
                f'{name} has format version {version}, and this release reads up to {FORMAT_VERSION}. '
                'Upgrade pydantic-deep.'
            )
        try:
            turn = cls.model_validate_json(data)
            turn.load_deps()
            waits = bool(turn.pending)
        except (ValidationError, DeepAgentError) as error:
            raise UnusablePauseError(f'{name} is damaged: {error}') from error
        if not waits:
            raise UnusablePauseError(f'{name} is damaged: nothing in it waits.')
        return turn

    @property
    def pending(self) -> list[PendingApproval]:
        """What waits."""
        return pending_approvals(self.conversation.deferred_tool_requests)

    def load_deps(self) -> DeepAgentDeps:
        """Return the deps, without their backend."""
        return DeepAgentDeps.from_json(self.deps)

    def write(self, directory: Path) -> Path:
        """Write it to a new file that only this user can read, and return the file; it is whole or not there.

        Args:
            directory: Where to; it and its parent are made for this user alone.

        Raises:
            OSError: It cannot be written.
        """
        directory.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / f'{_now()}-{secrets.token_hex(4)}.json'
        temporary = path.with_suffix('.new')
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, 'wb') as file:
            file.write(self.model_dump_json().encode())
            file.flush()
            os.fsync(descriptor)
        return temporary.rename(path)


@dataclass
class Claim:
    """A file that this process has claimed, and nobody else can."""

    path: Path
    """Its name before."""
    held: Path
    """Its name now."""
    has_begun: bool = False
    """Whether answers were given, so that something may have run."""
    _is_finished: bool = False

    @classmethod
    def take(cls, path: Path) -> Self:
        """Claim a file.

        Raises:
            UnusablePauseError: There is no such file, or somebody has claimed it.
        """
        held = path.with_name(path.name + _claim('asking'))
        try:
            path.rename(held)
        except FileNotFoundError:
            raise UnusablePauseError(_why_gone(path)) from None
        except OSError as error:
            raise UnusablePauseError(f'{path} cannot be claimed: {error.strerror}.') from error
        return cls(path, held)

    def begin(self) -> None:
        """Note that answers were given: from now on something may have run."""
        self.held = self.held.rename(self.path.with_name(self.path.name + _claim('running')))
        self.has_begun = True

    def release(self) -> None:
        """Give the file back if nothing can have run."""
        if not (self.has_begun or self._is_finished):
            self.held.rename(self.path)

    def finish(self) -> None:
        """Remove the file: all that waited in it is done."""
        self.held.unlink()
        self._is_finished = True


def _claim(state: Literal['asking', 'running']) -> str:
    host = re.sub(r'[^\w.-]', '_', socket.gethostname()) or '_'
    return f'.{state}-{host}-{os.getpid()}-{_now()}'


def _now() -> str:
    return datetime.now(UTC).strftime('%Y%m%dT%H%M%SZ')


def _why_gone(path: Path) -> str:
    """Return why there is no file of that name, as far as its neighbours tell."""
    found = [
        (other, match) for other in _neighbours(path) if (match := _CLAIMED.fullmatch(other.name[len(path.name) :]))
    ]
    if not found:
        return f'There is no file {path}. A paused turn that was resumed to its end is removed.'
    other, match = max(found, key=lambda pair: pair[1]['time'])
    who = f'process {match["pid"]} on {match["host"]}, {match["time"]}'
    if match['state'] == 'asking':
        return (
            f'{path} is being answered by another: {who}. If that process is gone, nothing of it has run; '
            f'take the file back with: {_take_back(other, path)}'
        )
    return (
        f'{path} was answered by another: {who}. If that process is gone, this may have run: '
        f'{_named(other, path)}. Look, then answer again if you want to: {_take_back(other, path)}'
    )


def _take_back(held: Path, path: Path) -> str:
    return f'mv {shlex.quote(str(held))} {shlex.quote(str(path))}'


def _neighbours(path: Path) -> list[Path]:
    try:
        return [other for other in path.parent.iterdir() if other.name.startswith(path.name)]
    except OSError:
        return []


def _named(held: Path, path: Path) -> str:
    """Return what waits in a file, in a few words."""
    try:
        pending = PausedTurn.parse(held.read_bytes(), str(path)).pending
    except (OSError, UnusablePauseError):
        return 'what waited in it'
    return ', '.join(describe_call(call) for call in pending)


def describe_call(call: PendingApproval) -> str:
    """Return a call in a few words."""
    about = next((str(call.arguments[name]) for name in ('command', 'path') if name in call.arguments), '')
    return f'{call.tool} {about}'.strip()
