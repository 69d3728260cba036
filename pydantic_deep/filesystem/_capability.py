"""The file tools as a capability for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_ai import AgentToolset, ModelRequestContext, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.capabilities import ValidatedToolArgs
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ToolCallPart, UserPromptPart
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep._checks import check_backend, check_least
from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._messages.half_characters import join_halves
from pydantic_deep._messages.headings import FILES_HEADING, UPLOADS_HEADING
from pydantic_deep._messages.iterators import drained
from pydantic_deep._messages.notice import Notice, first_requests, last_noticed
from pydantic_deep._messages.notice_order import SendsNotices
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._toolsets.parallel_calls import has_parallel_calls
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep.extensions import (
    SupportsApprovalGate,
    SupportsCompleteTracking,
    SupportsNoticeReplay,
    find_capabilities,
)
from pydantic_deep_backends import StateBackend, SupportsProtection
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.paths import display_path, path_parts
from pydantic_deep_backends.protection import check_patterns, compare_protected, protected_patterns_of

from ._backend import as_backend, commands_of, source_of
from ._files import Files, RunState
from ._inputs import last_prompts, shorten_prompts
from ._listing import list_names
from ._offload import HEAD_CHARS, TAIL_CHARS, render_preview, store_text, text_of, with_text
from ._preview import preview_call, read_paths, written_file
from ._protection import changes_protected, refusal
from ._render import render_uploads
from ._toolset import TOOLSET_ID, function_toolset
from ._touched_files import ROOM_ID, carried_over
from ._types import BackendSource, UploadLike

INSTRUCTIONS = (
    'Only tools change files. Start with a tool call. '
    'Paths are relative to the working directory. Read a file before you edit it.'
)

OFFLOAD_CHARS = 20_000
"""Maximum length of a tool result or prompt in the conversation, in characters: about 5,000 tokens for each request.

The same limit applies to both, as both cost the same and are read back in the same way.
"""


@dataclass(kw_only=True)
class Filesystem(SendsNotices):
    """Tools that read, search and change files: `Agent(model, capabilities=[Filesystem()])`.

    The files are those of `backend`, otherwise of `deps.backend`, otherwise of the run's workspace. A workspace does
    not support compare-and-swap: there, concurrent changes of a file are safe within a run, but not between runs.

    If the result of any tool exceeds `offload_chars`, as text or as JSON, the model receives only its head and tail.
    The complete result is stored in memory under `/offload`, where `read_file` and `grep` can access it, for the
    lifetime of `DeepAgentDeps` or otherwise of the run. Images and other files of a result follow its text. Not
    shortened are results of tools with a `tool_kind`, which programs read, and `ToolReturn.content`. Long texts in the
    user's prompt are offloaded in the same way before they are first sent; the message history is not changed.

    Files that programs on the host execute or obey, such as `.git/config`, are protected: with approvals, a person
    decides on each write by a tool; without approvals, the write is refused. Third-party tools are covered if they have
    an argument named `path` or similar.

    Raises:
        UserError: At the start of a run without a backend, or with an invalid one.
        ValueError: `backend` is neither a backend nor a function, `offload_chars` is less than the head and tail of an
            offloaded result, or a pattern is malformed.
    """

    id: str | None = ROOM_ID
    backend: BackendSource | None = None
    """The backend, or a function that returns it for the context of a run."""
    offload_chars: int | None = OFFLOAD_CHARS
    """Maximum length of a tool result, and of a text in a prompt, in characters; `None` means no limit."""
    protected: Sequence[str] | None = None
    """Patterns of protected files, in the form of `PROTECTED_FILES` of `pydantic_deep_backends`; `()` protects none.
    With `None`, the patterns of the backend apply, which default to `PROTECTED_FILES`.
    """
    _notice: Notice = field(
        default_factory=lambda: Notice(heading=UPLOADS_HEADING, known=''), init=False, repr=False, compare=False
    )
    _listing: Notice | None = field(default=None, init=False, repr=False, compare=False)
    """The notice of existing files; `None` after it was sent."""
    _uploads: Mapping[str, UploadLike] = field(
        default_factory=dict[str, UploadLike], init=False, repr=False, compare=False
    )
    _known: list[UserPromptPart] = field(default_factory=list[UserPromptPart], init=False, repr=False, compare=False)
    """The last prompts of the history, which are not shortened."""
    _protected_before: Mapping[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    """The digests of protected files before the first call that could change them without approval."""
    _run: RunState = field(init=False, repr=False, compare=False)
    _cached_files: tuple[object, Files] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.backend is not None and (isinstance(self.backend, type) or not callable(self.backend)):
            check_backend('backend', self.backend)
        if self.offload_chars is not None:
            check_least('offload_chars', self.offload_chars, HEAD_CHARS + TAIL_CHARS, or_none=True)
        if self.protected is not None:
            self.protected = check_patterns(self.protected)
        self._run = RunState(offload=StateBackend(), offload_chars=self.offload_chars)

    async def for_run(self, ctx: RunContext[object]) -> Filesystem:
        """Return an instance for this run, which tracks the files that its model has read."""
        run = replace(self)
        run._notice = Notice(heading=UPLOADS_HEADING, known=last_noticed(ctx.messages, UPLOADS_HEADING))
        run._listing = Notice(heading=FILES_HEADING, known=last_noticed(ctx.messages, FILES_HEADING))
        run._known = last_prompts(ctx.messages)
        shared = getattr(ctx.deps, '_offload', None)
        if isinstance(shared, StateBackend):
            run._run = replace(run._run, offload=shared)
        run._files(ctx)  # raise at the start of the run if it has no files, not at the first tool call
        return run

    def get_instructions(self) -> str:
        """Return the instructions about files."""
        return INSTRUCTIONS

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset with the file tools."""
        return RunToolset(function_toolset(), self._files)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Send notices of files and uploads that the model does not know, and shorten long prompts."""
        requests = first_requests(ctx, request_context)
        if self._listing is not None:
            listing, self._listing = self._listing, None
            if ctx.prompt is not None:
                listing.add_to(requests, await self._names(ctx, listing.known))
        self._notice.enqueue(ctx, render_uploads(self._uploads.values()))
        if self.offload_chars is not None:
            for message in requests:
                await shorten_prompts(
                    self._files(ctx), message, self.offload_chars, known=self._known, prompt=ctx.prompt
                )
        return request_context

    async def changes_guarded_file(
        self, ctx: RunContext[object], *, tool_def: ToolDefinition, args: Mapping[str, Any], files: Sequence[str] | None
    ) -> bool:
        """Return whether a call would change a protected file."""
        backend = self._files(ctx).backend
        patterns = protected_patterns_of(backend) if self.protected is None else self.protected
        return await changes_protected(backend, patterns, args, files)

    async def guarded_changes(self, ctx: RunContext[object]) -> Sequence[str]:
        """Return the protected files that changed since the first call that could change them without approval."""
        backend = self._files(ctx).backend
        if self._protected_before is None or not isinstance(backend, SupportsProtection):
            return []
        changes = compare_protected(self._protected_before, await backend.protected_files())
        return [f'{display_path(change.path)} ({change.change})' for change in changes]

    async def before_tool_execute(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Record the protected files before the first call that may write without naming paths, such as a command, a
        subagent or a third-party tool.
        """
        effect = (tool_def.metadata or {}).get('effect')
        if self._protected_before is None and effect not in ('read', 'write'):
            backend = self._files(ctx).backend
            is_tracked = any(
                tracker.tracks_all_changes() for tracker in find_capabilities(ctx, SupportsCompleteTracking)
            )
            if isinstance(backend, SupportsProtection) and not is_tracked:
                self._protected_before = await backend.protected_files()
        if has_parallel_calls(ctx):  # a parallel call may have changed the target of a path
            await self._refuse_protected(ctx, tool_def, args)
        return args

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Refuse a change of protected files, unless a person has approved it or approvals will ask for it."""
        await self._refuse_protected(ctx, tool_def, args)
        return args

    async def after_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        result: Any,
    ) -> Any:
        """Return a result that a history can store: valid Unicode, and shortened to head and tail if it is too long."""
        is_window = tool_def.toolset_id == TOOLSET_ID and tool_def.name == 'read_file'
        is_typed = tool_def.tool_kind is not None  # pydantic-ai reads such results
        limit = None if is_window or is_typed else self.offload_chars
        result = drained(result)
        if isinstance(result, ToolReturn):
            whole = cast('ToolReturn[object]', result)
            return replace(whole, return_value=await self._fit(ctx, whole.return_value, limit, call))
        return await self._fit(ctx, result, limit, call)

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return the effect of a call of one of these tools, as a diff or a command line; `None` for other tools."""
        return await preview_call(self._files(ctx), tool_def, args)

    async def written_file(
        self,
        ctx: RunContext[object],
        *,
        tool_def: ToolDefinition,
        args: Mapping[str, Any],
        read: Callable[[str], Awaitable[bytes | None]],
    ) -> tuple[str, bytes | None] | None:
        """Return the path and the new contents of the file that a call of one of these tools writes; `None` for other
        tools, and for invalid arguments.
        """
        return await written_file(self._files(ctx), tool_def, args, read)

    async def working_dir(self, ctx: RunContext[object]) -> str:
        """Return the working directory of the backend."""
        return await self._files(ctx).backend.working_dir()

    async def read_paths(
        self, ctx: RunContext[object], *, tool_def: ToolDefinition, args: Mapping[str, Any]
    ) -> Sequence[str] | None:
        """Return the canonical paths of the files and directories that a call of one of these tools reads; `None` for
        other tools, and for commands.
        """
        return await read_paths(self._files(ctx), tool_def, args)

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the uploads, and the files that were read or changed by calls that a summary replaces."""
        touched = carried_over(replaced)
        uploads = render_uploads(self._uploads.values())
        sections = [f'{UPLOADS_HEADING}\n{uploads}'] if uploads else []
        return replace(touched, text='\n'.join([*sections, touched.text]).rstrip('\n'))

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the tools that are hidden because the backend of the run does not support them."""
        return frozenset() if self._files(ctx).commands is not None else frozenset(('execute',))

    async def _names(self, ctx: RunContext[object], known: str) -> str:
        """Return the notice of existing files: the recorded one in a replay, otherwise the current one."""
        for replay in find_capabilities(ctx, SupportsNoticeReplay):
            return replay.recorded_notice(FILES_HEADING, known)
        uploads = {path_parts(upload.path)[0] for upload in self._uploads.values()}
        try:
            return await list_names(self._files(ctx).backend, without=uploads)
        except (OSError, BackendError, WorkspaceError):  # the tools report the error in more detail
            return known

    async def _refuse_protected(
        self, ctx: RunContext[object], tool_def: ToolDefinition, args: Mapping[str, Any]
    ) -> None:
        if (
            (tool_def.metadata or {}).get('effect') == 'write'
            and tool_def.kind == 'function'
            and not ctx.tool_call_approved
            and not find_capabilities(ctx, SupportsApprovalGate)
            and await self.changes_guarded_file(ctx, tool_def=tool_def, args=args, files=None)
        ):
            raise ToolFailed(refusal(args))

    async def _fit(self, ctx: RunContext[object], result: object, limit: int | None, call: ToolCallPart) -> object:
        if isinstance(result, str):
            result = join_halves(result)
        text = None if limit is None else text_of(result)
        if text is None or limit is None or len(text) <= limit:
            return result
        preview = render_preview(text, await store_text(self._files(ctx), call.tool_call_id, text))
        return with_text(preview, result)

    def _files(self, ctx: RunContext[object]) -> Files:
        """Return the files of this run, cached while their source is the same."""
        uploads = getattr(ctx.deps, 'uploads', None)  # by name, as deps may be any object
        if uploads is not None:
            self._uploads = cast('Mapping[str, UploadLike]', uploads)
        source = source_of(self.backend, ctx)
        if self._cached_files is None or self._cached_files[0] is not source:
            backend = as_backend(source)
            self._cached_files = source, Files(backend=backend, commands=commands_of(backend), run=self._run)
        return self._cached_files[1]
