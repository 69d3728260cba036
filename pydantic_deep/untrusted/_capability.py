"""The capability that requires approval for outward calls after untrusted content was read, for any pydantic-ai agent."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from pydantic_ai import ModelRequestContext, RunContext, ToolDefinition, ToolReturn, UserError
from pydantic_ai.capabilities import ValidatedToolArgs, WrapToolExecuteHandler
from pydantic_ai.exceptions import ToolFailedError, ToolRetryError
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_strings
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._pause_check import check_can_pause
from pydantic_deep.extensions import SupportsReadPaths, find_capabilities

from ._outward import TrustedFiles, is_outward, trusted_files
from ._sources import (
    FRAMEWORK_KINDS,
    MARK,
    MAX_SOURCES,
    find_sources,
    is_delegating,
    is_trusted,
    mark_part,
    render_reason,
    with_mark,
)

HARMLESS_NATIVE_TOOLS: Final = frozenset(
    ('web_search', 'x_search', 'file_search', 'code_execution', 'image_generation', 'memory', 'advisor', 'tool_search')
)
"""The native tools that cannot send data to an address that the model chooses."""


@dataclass(kw_only=True)
class UntrustedContent(BaseCapability[object]):
    """Requires approval for calls with effects outside of the project, once the conversation has untrusted content.

    Whoever writes a text that a model reads may make the model obey it. From the first result with such a text, a person
    decides on commands, on every call with the effect `external` or without a declared effect, on requests for a URL,
    and on writes to files that are not in `trusted_paths`. Rules of `interrupt_on` that allow such a call, and grants of
    skills, do not apply any more. Calls in the same response as the reading call were decided before the model had the
    result, and run.

    Results are untrusted unless the tool has the metadata `{'trusted': True}`, or is in `trusted_tools`. Results of the
    file tools are untrusted if they contain files outside of `trusted_paths`, results of `task` if the subagent or its
    own subagents have read untrusted content, and those of the provider's native tools always. A tool can mark a
    single result, with `ToolReturn(…, metadata={'untrusted': True})`.

    The mark is in the metadata of the result and remains in the conversation, also if a summary replaces the result.
    An approval does not remove it. A version from before the result does not have it, and neither does a new
    conversation. Subagents inherit the sources and the policy.

    Raises:
        UserError: At the start of a run without approvals, or at a request with a native tool that can send data to any
            address. Calls of native tools cannot be held.
        TypeError: `trusted_paths` or `trusted_tools` is not a list of strings.
    """

    id: str | None = 'untrusted_content'
    trusted_paths: Sequence[str] = ('.',)
    """Directories and files whose contents are trusted, relative to the working directory or absolute. The directories
    of uploads and of offloaded results are trusted only if they are named: `('.', 'uploads')`.
    """
    trusted_tools: Collection[str] = ()
    """The names of tools whose results are trusted, in addition to those with the metadata `{'trusted': True}`."""
    _sources: dict[str, None] = field(default_factory=dict[str, None], init=False, repr=False, compare=False)
    """The untrusted content that the model of this run has seen, in order."""
    _below: dict[str, None] = field(default_factory=dict[str, None], init=False, repr=False, compare=False)
    """The untrusted content that subagents of this run have seen."""
    _above: UntrustedContent | None = field(default=None, init=False, repr=False, compare=False)
    """The instance of the parent's run."""
    _last: tuple[int, ModelMessage] | None = field(default=None, init=False, repr=False, compare=False)
    """The last message that was searched, and its index."""
    _found_readers: Sequence[SupportsReadPaths] | None = field(default=None, init=False, repr=False, compare=False)
    """The capabilities that know which files a call reads; `None` before they are looked up."""

    def __post_init__(self) -> None:
        check_strings('trusted_paths', self.trusted_paths)
        check_strings('trusted_tools', self.trusted_tools)

    def for_subagent(self) -> UntrustedContent:
        """Return the instance for the run of a subagent, which knows the untrusted content of this run."""
        inherited = replace(self, id=None)
        inherited._above, inherited._sources = self, {**self._sources}
        return inherited

    async def for_run(self, ctx: RunContext[object]) -> UntrustedContent:
        """Return a copy with the state of this run."""
        run = replace(self)
        run._above, run._sources = self._above, {**self._sources}
        return run

    async def before_run(self, ctx: RunContext[object]) -> None:
        """Check that the run can ask a person.

        Raises:
            UserError: It has no approvals.
        """
        check_can_pause(ctx, 'UntrustedContent')

    async def before_model_request(
        self, ctx: RunContext[object], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Search the new messages, and refuse native tools whose calls could send data.

        Raises:
            UserError: The request has such a tool.
        """
        for tool in request_context.model_request_parameters.native_tools:
            if tool.kind not in HARMLESS_NATIVE_TOOLS:
                raise UserError(
                    f'`UntrustedContent` cannot hold calls of the native tool {tool.kind!r}, which runs at the provider '
                    'and can send data. Use a function tool or an MCP toolset instead.'
                )
        self._search(ctx, len(ctx.messages))
        return request_context

    async def after_model_request(
        self, ctx: RunContext[object], *, request_context: ModelRequestContext, response: ModelResponse
    ) -> ModelResponse:
        """Search the results of native tools, which may be in the last response of the run."""
        self._add(find_sources([response], {}, ()))
        return response

    async def approval_reason(
        self,
        ctx: RunContext[object],
        *,
        tool_def: ToolDefinition,
        args: Mapping[str, Any],
        files: Sequence[str] | None,
    ) -> str | None:
        """Return the untrusted content that was read before an outward call; `None` for other calls."""
        self._search_before_response(ctx)
        if not self._sources or is_delegating(tool_def) or tool_def.tool_kind in FRAMEWORK_KINDS:
            return None
        for reader in self._readers(ctx) if files else ():
            files = (await self._trusted_files(ctx, reader)).outside(files or ())
        is_tool_trusted = is_trusted(tool_def, self.trusted_tools)
        if is_outward(tool_def, args, is_trusted=is_tool_trusted, outside=files):
            return render_reason(self._sources)
        return None

    async def wrap_tool_execute(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """Mark a result or a failure with untrusted content."""
        self._search_before_response(ctx)  # a subagent inherits what was found
        try:
            result = await handler(args)
        except (ToolFailedError, ToolRetryError) as error:
            part = error.tool_failed if isinstance(error, ToolFailedError) else error.tool_retry
            if sources := await self._sources_of(ctx, tool_def, args, ''):
                mark_part(part, sources)
            raise
        returned = cast('object', result.return_value) if isinstance(result, ToolReturn) else result
        sources = await self._sources_of(ctx, tool_def, args, str(cast('object', returned)))
        return with_mark(cast('object', result), sources) if sources else cast('object', result)

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the untrusted content among messages that a summary replaces."""
        sources = [*dict.fromkeys(find_sources(replaced, ctx.tools, self.trusted_tools))]
        return CarriedOver(text='', state={MARK: [*sources]} if sources else None)

    async def _sources_of(
        self, ctx: RunContext[object], tool_def: ToolDefinition, args: Mapping[str, Any], text: str
    ) -> list[str]:
        """Return the sources of untrusted content in the result of a call, and report them to the parent."""
        if is_delegating(tool_def):
            sources = [*self._below]
        elif not is_trusted(tool_def, self.trusted_tools):
            sources = [tool_def.name]
        else:
            paths = await self._outside_paths(ctx, tool_def, args, text)
            sources = [f'{tool_def.name} {path}' for path in paths[:MAX_SOURCES]]
        self._report(sources)
        return sources

    async def _outside_paths(
        self, ctx: RunContext[object], tool_def: ToolDefinition, args: Mapping[str, Any], text: str
    ) -> list[str]:
        """Return the files outside of the project that a call of a trusted tool has read."""
        if tool_def.name in self.trusted_tools:
            return []
        for reader in self._readers(ctx):
            paths = await reader.read_paths(ctx, tool_def=tool_def, args=args)
            if paths is not None:
                return (await self._trusted_files(ctx, reader)).outside(paths, text)
        return []

    def _readers(self, ctx: RunContext[object]) -> Sequence[SupportsReadPaths]:
        if self._found_readers is None:
            self._found_readers = find_capabilities(ctx, SupportsReadPaths)
        return self._found_readers

    async def _trusted_files(self, ctx: RunContext[object], reader: SupportsReadPaths) -> TrustedFiles:
        return trusted_files(self.trusted_paths, await reader.working_dir(ctx))

    def _search_before_response(self, ctx: RunContext[object]) -> None:
        """Search the messages up to the last response. The model did not have later results when it made its calls."""
        messages = ctx.messages
        end = next((i for i in range(len(messages), 0, -1) if isinstance(messages[i - 1], ModelResponse)), 0)
        self._search(ctx, end)

    def _search(self, ctx: RunContext[object], end: int) -> None:
        """Search the messages before an index that are new since the last search; all of them after a summary."""
        messages, start = ctx.messages, 0
        if self._last is not None and self._last[0] < end and messages[self._last[0]] is self._last[1]:
            start = self._last[0] + 1
        if start < end:
            self._add(find_sources(messages[start:end], ctx.tools, self.trusted_tools))
            self._last = end - 1, messages[end - 1]

    def _add(self, sources: Iterable[str]) -> None:
        found = [*sources]
        self._sources.update(dict.fromkeys(found))
        self._report(found)

    def _report(self, sources: Sequence[str]) -> None:
        """Report untrusted content to the parent, which marks the result of this subagent."""
        if self._above is not None:
            self._above._below.update(dict.fromkeys(sources))
