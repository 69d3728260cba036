"""What the agent plugs in: files as one capability, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

from pydantic_ai import AgentToolset, ModelRequestContext, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ToolCallPart, UserPromptPart
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._messages.headings import FILES_HEADING, UPLOADS_HEADING
from pydantic_deep._messages.notice import Notice, last_noticed
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._toolsets.parallel_calls import has_parallel_calls
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep.extensions import SupportsApprovalGate, SupportsCompleteTracking, SupportsReplay, find_capabilities
from pydantic_deep_backends import StateBackend, SupportsProtection
from pydantic_deep_backends.errors import BackendError
from pydantic_deep_backends.paths import display_path, path_parts
from pydantic_deep_backends.protection import check_patterns, compare_protected, protected_patterns_of

from ._backend import as_backend, commands_of, source_of
from ._files import Files, RunState
from ._inputs import last_prompts, shorten_prompts
from ._listing import list_names
from ._offload import HEAD_CHARS, TAIL_CHARS, escape_halves, keep, render_preview, text_of
from ._preview import preview_call
from ._protection import changes_protected, refusal
from ._render import render_uploads
from ._toolset import TOOLSET_ID, function_toolset
from ._touched_files import ROOM_ID, carried_over
from ._types import BackendSource, UploadLike

INSTRUCTIONS = (
    'Paths are relative to the working directory, or start with /. To change a file, read it, then use edit_file.'
)

OFFLOAD_CHARS = 20_000
"""The longest result or prompt that stays in the conversation: some 5,000 tokens, paid for on every request.

One number for both: what it costs is the same whoever said it, and so is the way to the rest.
"""


@dataclass(kw_only=True)
class Filesystem(AbstractCapability[object]):
    """Tools that read, search and change files, on any agent: `Agent(model, capabilities=[Filesystem()])`.

    The files are those of `backend`; without it, those of `deps.backend`; without that, those of the run's workspace.
    A workspace has no compare-and-swap: there, changes of one file are safe within a run, not between runs.

    A result of any tool that is longer than `offload_chars`, as text or as the JSON that the model would be sent, is
    kept in memory under `/offload`, where `read_file` and `grep` find it, and the model gets its head and tail. It is
    kept with `DeepAgentDeps`, else for the run. Results with images or other files stay whole, and so do
    those of a tool with a `tool_kind`, which programs read, and `ToolReturn.content`.
    So is a text of the user's prompt that is longer, before a model is sent it; a history stays as it is.

    Files that programs of the host run or obey, such as `.git/config`, are protected: approvals ask a person before a
    tool writes one, and without approvals such a call is refused. Of tools that are not from here those are looked at
    that have an argument called `path`, or like it.

    Raises:
        UserError: At the start of a run that has no backend, or something else in its place.
        ValueError: `offload_chars` is less than what is shown of an offloaded result, or a pattern is malformed.
    """

    id: str | None = ROOM_ID
    backend: BackendSource | None = None
    """Where the files are, or a function that tells it for a run."""
    offload_chars: int | None = OFFLOAD_CHARS
    """The longest result that a tool may answer with, and the longest text of a prompt; `None` for no limit."""
    protected: Sequence[str] | None = None
    """Patterns of files that only a person may let be changed: as `PROTECTED_FILES` of `pydantic_deep_backends`, `()` for
    none. `None` for those of the backend, which are `PROTECTED_FILES` unless it was made with others."""
    _notice: Notice = field(
        default_factory=lambda: Notice(heading=UPLOADS_HEADING, known=''), init=False, repr=False, compare=False
    )
    _listing: Notice | None = field(default=None, init=False, repr=False, compare=False)
    """The notice of the files that there are; `None` once it was told."""
    _uploads: Mapping[str, UploadLike] = field(
        default_factory=dict[str, UploadLike], init=False, repr=False, compare=False
    )
    _known: list[UserPromptPart] = field(default_factory=list[UserPromptPart], init=False, repr=False, compare=False)
    """The last prompts of the history, which stay as they are."""
    _protected_before: Mapping[str, str] | None = field(default=None, init=False, repr=False, compare=False)
    """The states of protected files before the first call that could change them unasked."""
    _run: RunState = field(init=False, repr=False, compare=False)
    _found: tuple[object, Files] | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.offload_chars is not None and self.offload_chars < HEAD_CHARS + TAIL_CHARS:
            raise ValueError(
                f'`offload_chars` is {self.offload_chars}. Use at least {HEAD_CHARS + TAIL_CHARS}, or `None`.'
            )
        if self.protected is not None:
            self.protected = check_patterns(self.protected)
        self._run = RunState(offload=StateBackend(), offload_chars=self.offload_chars)

    async def for_run(self, ctx: RunContext[object]) -> Filesystem:
        """Return this run's instance, which alone knows what its model has read."""
        run = replace(self)
        run._notice = Notice(heading=UPLOADS_HEADING, known=last_noticed(ctx.messages, UPLOADS_HEADING))
        run._listing = Notice(heading=FILES_HEADING, known=last_noticed(ctx.messages, FILES_HEADING))
        run._known = last_prompts(ctx.messages)
        shared = getattr(ctx.deps, '_offload', None)
        if isinstance(shared, StateBackend):
            run._run = replace(run._run, offload=shared)
        run._files(ctx)  # a run without files is refused here, not at the first call of a tool
        return run

    def get_instructions(self) -> str:
        """Return what the model is told about files."""
        return INSTRUCTIONS

    def get_toolset(self) -> AgentToolset[object]:
        """Return the toolset of files."""
        return RunToolset(function_toolset(), self._files)

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Tell the model of the files and uploads that it does not know, and keep the prompt from being too long."""
        requests = _distinct(ctx.messages[-1], request_context.messages[-1])
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
        """Return which protected files have changed since the first call that could change them unasked."""
        backend = self._files(ctx).backend
        if self._protected_before is None or not isinstance(backend, SupportsProtection):
            return []
        changes = compare_protected(self._protected_before, await backend.protected_files())
        return [f'{display_path(each.path)} ({each.change})' for each in changes]

    async def before_tool_execute(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Note the state of protected files before the first call of a tool that may write without naming paths: a
        command, a subagent, or a tool of the user's.
        """
        effect = (tool_def.metadata or {}).get('effect')
        if self._protected_before is None and effect not in ('read', 'write'):
            backend = self._files(ctx).backend
            is_noted = any(each.tracks_all_changes() for each in find_capabilities(ctx, SupportsCompleteTracking))
            if isinstance(backend, SupportsProtection) and not is_noted:
                self._protected_before = await backend.protected_files()
        if has_parallel_calls(ctx):  # one of them may have changed where a path leads
            await self._refuse_protected(ctx, tool_def, args)
        return args

    async def after_tool_validate(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: ValidatedToolArgs
    ) -> ValidatedToolArgs:
        """Refuse to change protected files, unless a person allowed it or approvals will ask one."""
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
        """Return the result as a history can hold it: no half characters, and of one too long the head and tail."""
        is_window = tool_def.toolset_id == TOOLSET_ID and tool_def.name == 'read_file'
        is_typed = tool_def.tool_kind is not None  # what core reads itself keeps its shape
        limit = None if is_window or is_typed else self.offload_chars
        if isinstance(result, ToolReturn):
            whole = cast('ToolReturn[object]', result)
            return replace(whole, return_value=await self._fit(ctx, whole.return_value, limit, call))
        return await self._fit(ctx, cast('object', result), limit, call)

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
    ) -> Preview | None:
        """Return what a call of one of these tools would do, as a diff or a command line; `None` for other tools."""
        return await preview_call(self._files(ctx), tool_def, args)

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the uploads, and the files that were read and changed by calls that a summary replaces."""
        touched = carried_over(replaced)
        uploads = render_uploads(self._uploads.values())
        told = [f'{UPLOADS_HEADING}\n{uploads}'] if uploads else []
        return replace(touched, text='\n'.join([*told, touched.text]).rstrip('\n'))

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the tools that are not shown because the run's backend cannot do what they do."""
        return frozenset() if self._files(ctx).commands is not None else frozenset(('execute',))

    async def _names(self, ctx: RunContext[object], known: str) -> str:
        """Return what the model is told of the files: as in the run that this one repeats, or as they are now."""
        for each in find_capabilities(ctx, SupportsReplay):
            return each.recorded_notice(FILES_HEADING, known)
        uploads = {path_parts(upload.path)[0] for upload in self._uploads.values()}
        try:
            return await list_names(self._files(ctx).backend, without=uploads)
        except (OSError, BackendError, WorkspaceError):  # the tools say better what is wrong
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
            result = escape_halves(result)
        text = None if limit is None else text_of(result)
        if text is None or limit is None or len(text) <= limit:
            return result
        return render_preview(text, await keep(self._files(ctx), call.tool_call_id, text))

    def _files(self, ctx: RunContext[object]) -> Files:
        """Return the files of this run; made anew only if they come from somewhere else than before."""
        uploads = getattr(ctx.deps, 'uploads', None)  # by name: deps may be anything
        if uploads is not None:
            self._uploads = cast('Mapping[str, UploadLike]', uploads)
        source = source_of(self.backend, ctx)
        if self._found is None or self._found[0] is not source:
            backend = as_backend(source)
            self._found = source, Files(backend=backend, commands=commands_of(backend), run=self._run)
        return self._found[1]


def _distinct(message: ModelMessage, sent: ModelMessage) -> list[ModelMessage]:
    """Return both: one and the same, unless it was replaced."""
    return [message] if sent is message else [message, sent]
