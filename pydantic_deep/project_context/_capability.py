"""The instructions of a project as a capability for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Final, cast

from anyio import to_thread
from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelMessage

from pydantic_deep._checks import check_least, check_object, check_strings
from pydantic_deep._messages.headings import PROJECT_HEADING
from pydantic_deep._messages.notice import Notice, first_requests, last_noticed
from pydantic_deep._messages.notice_order import SendsNotices
from pydantic_deep._messages.summary_metadata import CarriedOver, carried_state
from pydantic_deep.extensions import SupportsNoticeReplay, find_capabilities
from pydantic_deep_backends import BackendProtocol

from ._files import find_above, find_in_backend, render

FILENAMES: Final = ('AGENTS.md', 'CLAUDE.md')
"""The names of instruction files, in order of precedence."""

MAX_CHARS: Final = 20_000
"""Maximum length of all instructions of a project in characters, about 5,000 tokens."""

_ID: Final = 'project_context'


@dataclass(kw_only=True)
class ProjectContext(SendsNotices):
    """Gives the model the instructions of a project: `Agent(model, capabilities=[ProjectContext()])`.

    They are in files named `AGENTS.md`, or `CLAUDE.md` where there is none, in the working directory of the run and in
    the directories above it that the backend can read. The model gets them before the first prompt, and again before a
    later prompt if they have changed since. Earlier messages remain unchanged, and so does the prefix that a provider
    has cached. They remain when a summary replaces the history, and subagents receive them too.

    Whoever can write these files can instruct the agent. They are [protected files][pydantic_deep_backends.PROTECTED_FILES],
    so the agent itself changes them only if a person approves.

    Raises:
        UserError: At the start of a run without a backend.
        ValueError: `filenames` is empty or contains a path, or `max_chars` is not positive.
        TypeError: `filenames` is a single string.
    """

    id: str | None = _ID
    filenames: Sequence[str] = FILENAMES
    """The names of instruction files. Of each directory, the first one that exists is used."""
    max_chars: int = MAX_CHARS
    """Maximum length of all instructions in characters. The files of inner directories have precedence, and the rest is
    replaced by its length.
    """
    host_directory: str | Path | None = None
    """A directory on this machine. The files above it, up to the root of its git repository, are used too, although the
    backend cannot read them.
    """
    _notice: Notice | None = field(default=None, init=False, repr=False, compare=False)
    """The notice of the instructions; `None` after it was sent."""
    _known: str = field(default='', init=False, repr=False, compare=False)
    """The instructions that the model knows."""

    def __post_init__(self) -> None:
        check_strings('filenames', self.filenames)
        if not self.filenames or any(not name or '/' in name or '\\' in name for name in self.filenames):
            raise ValueError(f'`filenames` is {self.filenames!r}. Pass names of files, without directories.')
        check_least('max_chars', self.max_chars, 1)
        check_object('host_directory', self.host_directory, (str, Path, NoneType), 'Pass a directory.')

    async def for_run(self, ctx: RunContext[object]) -> ProjectContext:
        """Return an instance for this run, which knows what its history contains."""
        _backend_of(ctx)
        run = replace(self)
        run._known = _known_in(ctx.messages)
        run._notice = Notice(heading=PROJECT_HEADING, known=run._known)
        return run

    def for_subagent(self) -> ProjectContext:
        """Return this capability: subagents work on the same project."""
        return self

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send the instructions before the prompt, unless the model knows them."""
        if self._notice is not None:
            notice, self._notice = self._notice, None
            if ctx.prompt is not None:
                notice.add_to(first_requests(ctx, request_context), await self._text(ctx, notice.known))
                self._known = notice.known
        return request_context

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the instructions, unless they are in the first message: a summary retains its system prompts."""
        if not self._known or last_noticed(replaced[:1], PROJECT_HEADING) == self._known:
            return CarriedOver(text='')
        return CarriedOver(text=f'{PROJECT_HEADING}\n{self._known}', state=self._known)

    async def _text(self, ctx: RunContext[object], known: str) -> str:
        """Return the instructions: the recorded ones in a replay, otherwise the current ones."""
        for replay in find_capabilities(ctx, SupportsNoticeReplay):
            return replay.recorded_notice(PROJECT_HEADING, known)
        files = await find_in_backend(_backend_of(ctx), self.filenames)
        if self.host_directory is not None:
            files = [*await to_thread.run_sync(find_above, Path(self.host_directory), self.filenames), *files]
        return render(files, self.max_chars)


def _backend_of(ctx: RunContext[object]) -> BackendProtocol:
    source: object = getattr(ctx.deps, 'backend', None)  # by name, as deps may be any object
    if source is None and ctx.workspace.attached:
        source = ctx.workspace
    if source is None:
        raise UserError(
            '`ProjectContext` has no files to read. Pass deps with a `backend`, or `workspace=` to the run.'
        )
    return cast('BackendProtocol', source)


def _known_in(messages: Sequence[ModelMessage]) -> str:
    """Return the instructions that a history contains, or its summary; empty if there are none."""
    after_summary = last_noticed(messages[1:], PROJECT_HEADING)
    carried = cast('str | None', carried_state(messages, _ID))
    return after_summary or carried or last_noticed(messages[:1], PROJECT_HEADING)
