"""The file tools.

The tools are created once for all agents. Each run passes its own `Files` as deps, so the tools work the same on any
agent and creating an agent is cheap.
"""

from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated

from pydantic import WithJsonSchema
from pydantic_ai import BinaryContent, FunctionToolset, RunContext, ToolDefinition, ToolReturn
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from pydantic_deep._messages.deferred_metadata import Approved, CallRequest, Edited, parse_answer, parse_request
from pydantic_deep._messages.media import MAX_MEDIA_BYTES, MEDIA_TYPES
from pydantic_deep._messages.result_metadata import EXIT_CODE_KEY, with_file_change, with_resolved_path
from pydantic_deep._spans import open_span
from pydantic_deep._text.encodings import Text, guess_media_type, parse_text
from pydantic_deep._toolsets.tool_schema import ToolSchema
from pydantic_deep_backends.protocol import SupportsSearch
from pydantic_deep_backends.search import GlobResult, GrepResult, glob_backend, grep_backend

from ._changes import at_lines, decide_edit, decide_write, kind_of, refuse_command
from ._failures import tool_failures
from ._files import Files, Place
from ._render import (
    at_any_depth,
    below_directory,
    render_command,
    render_entries,
    render_glob,
    render_grep,
    render_size,
    render_timeout,
)
from ._types import OutputMode
from ._window import OffsetError, parse_offset, render_window

TOOLSET_ID = 'filesystem'

MAX_RETRIES = 10
"""Maximum number of consecutive invalid calls of one tool before the run ends, as in `create_deep_agent`: pydantic-ai's
default of 1 is too low for small models. Errors of the tools themselves never end a run.
"""

MAX_RESULT_CHARS = 20_000
"""Maximum length of a file section or search result in characters, about 5,000 tokens."""

MAX_GREP_LINES = 1_000
"""Maximum number of matching lines that grep collects. `MAX_RESULT_CHARS` limits long lines earlier."""


async def ls(ctx: RunContext[Files], path: str = '.') -> str:
    """List a directory."""
    place = await _place(ctx, path, to_read=True)
    with tool_failures(place.path):
        async with ctx.deps.naming_others(place):
            return render_entries(place.path, await place.backend.list_dir(place.path))


async def read_file(
    ctx: RunContext[Files],
    path: str,
    offset: Annotated[int | str, WithJsonSchema({'type': 'integer'})] = 1,
    limit: int = 2000,
) -> str | ToolReturn[str] | ToolReturn[list[str | BinaryContent]]:
    """Read a text as numbered lines from line offset, or see an image or PDF."""
    place = await _place(ctx, path, to_read=True)
    with tool_failures(place.path):
        data = await ctx.deps.read(place)
    if not data:
        return f'{place.shown} is empty.'
    media_type = guess_media_type('', data, None)
    if media_type in MEDIA_TYPES:
        return _show_media(place, data, media_type)
    text = parse_text(data)
    if text is None:
        raise ToolFailed(f'{place.shown} is not text: {kind_of(place, data)}, {render_size(len(data))}.')
    max_chars = min(MAX_RESULT_CHARS, ctx.deps.run.offload_chars or MAX_RESULT_CHARS)
    if not text.text:
        return f'{place.shown} is empty but for a byte order mark.'
    try:
        shown = render_window(text.shown, parse_offset(offset), limit=limit, max_chars=max_chars)
    except OffsetError as error:
        raise ModelRetry(f'{place.shown}: {error}') from error
    return with_resolved_path(shown + _encoding_note(text), path, place.path)


async def write_file(ctx: RunContext[Files], path: str, content: str) -> ToolReturn[str]:
    """Create a file, or replace all of it."""
    place = await _place(ctx, path)
    with tool_failures(place.path):
        written, before, after = await ctx.deps.change(
            place, decide_write(place, content), approved=_approved_files(ctx)
        )
    lines = content.count('\n') + (content != '' and not content.endswith('\n'))
    notes = [f'{lines:,} line{"" if lines == 1 else "s"}', render_size(len(written.data))]
    if written.encoding != 'utf-8':
        notes.append(written.encoding)
    if written.crlf:
        notes.append('CRLF line ends kept')
    done = f'{"Replaced" if written.replaced else "Created"} {place.shown}: {", ".join(notes)}.'
    return with_file_change(done, path, place.path, before, after)


async def edit_file(
    ctx: RunContext[Files], path: str, old_string: str, new_string: str, replace_all: bool = False
) -> ToolReturn[str]:
    """Replace old_string by new_string. Copy old_string exactly, without line numbers; it must occur once."""
    decide = decide_edit(old_string, new_string, replace_all=replace_all)
    place = await _place(ctx, path)
    with tool_failures(place.path):
        approved: Mapping[str, str | None] = {}
        if replace_all:  # otherwise an approval covers the edit, whatever else the file contains
            approved = _approved_files(ctx)
        edited, before, after = await ctx.deps.edit(place, partial(decide, place), approved=approved)
    matches = '1 match' if edited.count == 1 else f'{edited.count:,} matches'
    done = f'Replaced {matches} {at_lines(edited.line_numbers, edited.count)}.'
    return with_file_change(done, path, place.path, before, after)


async def glob(ctx: RunContext[Files], pattern: str, path: str = '.') -> str:
    """Find files by name, such as **/*.py."""
    place = await _place(ctx, path, to_read=True)
    with tool_failures(place.path):
        async with ctx.deps.naming_others(place):
            found = await search_names(place, pattern)
    return render_glob(found, pattern)


async def search_names(place: Place, pattern: str) -> GlobResult:
    """Return the files below a directory that match a pattern, which may also begin with the directory itself."""

    async def search(pattern: str) -> GlobResult:
        if isinstance(place.backend, SupportsSearch):
            return await place.backend.glob(pattern, place.path)
        return await glob_backend(place.backend, pattern, place.path)

    found = await search(pattern)
    below = None if found.paths else below_directory(pattern, place.path)
    return found if below is None else await search(below)


async def grep(
    ctx: RunContext[Files],
    pattern: str,
    path: str = '.',
    glob: str | None = None,
    output_mode: OutputMode = 'content',
) -> str:
    """Search lines by a regular expression, in files that match glob."""
    place = await _place(ctx, path, to_read=True)
    with tool_failures(place.path):
        async with ctx.deps.naming_others(place):
            result = await search_lines(place, pattern, glob)
    return render_grep(result, output_mode, max_chars=MAX_RESULT_CHARS)


async def search_lines(place: Place, pattern: str, glob: str | None) -> GrepResult:
    """Return the matching lines of the files below a directory. Links to files are followed.

    Args:
        place: The directory, or a file.
        pattern: The regular expression.
        glob: The pattern of the files: of names at any depth, or of paths, which may also begin with the directory
            itself.
    """

    async def search(glob: str | None) -> GrepResult:
        if isinstance(place.backend, SupportsSearch):
            return await place.backend.grep(pattern, place.path, glob=glob, limit=MAX_GREP_LINES)
        return await grep_backend(place.backend, pattern, place.path, glob=glob, limit=MAX_GREP_LINES)

    if glob is None:
        return await search(None)
    found = await search(at_any_depth(glob))  # like ripgrep, and as models expect
    below = None if found.files_searched else below_directory(glob, place.path)
    return found if below is None else await search(below)


async def execute(ctx: RunContext[Files], command: str, timeout_seconds: float = 120) -> ToolReturn[str]:
    """Run a shell command in the working directory."""
    refuse_command(command, timeout_seconds)
    if ctx.deps.commands is None:
        raise ToolFailed('Commands cannot be run here.')
    with tool_failures('the command'), open_span('run command', {}) as span:
        try:
            # The tool is defined to run a shell command; isolation is the responsibility of the backend.
            result = await ctx.deps.commands.run(command, shell=True, timeout=timeout_seconds)  # noqa: S604
        except TimeoutError as error:
            raise ToolFailed(render_timeout(error, timeout_seconds)) from error
        span.set_attribute('process.exit.code', result.exit_code)
    return ToolReturn(render_command(result), metadata={EXIT_CODE_KEY: result.exit_code})


@cache
def function_toolset() -> FunctionToolset[Files]:
    """Return the toolset of the functions above. Its deps are `Files`.

    Tools that change files are sequential: they run after all earlier calls of a response and before all later ones, so
    that a response takes effect in its order. Reads between two changes run in parallel.
    """

    async def where_commands_run(ctx: RunContext[Files], tool_def: ToolDefinition) -> ToolDefinition | None:
        return None if ctx.deps.commands is None else tool_def

    toolset = FunctionToolset[Files](id=TOOLSET_ID, max_retries=MAX_RETRIES, schema_generator=ToolSchema)
    read, write = {'effect': 'read', 'trusted': True}, {'effect': 'write', 'writes': 'file', 'trusted': True}
    toolset.add_function(ls, metadata=read)
    toolset.add_function(read_file, metadata=read)
    toolset.add_function(write_file, metadata=write, sequential=True)
    toolset.add_function(edit_file, metadata=write, sequential=True)
    toolset.add_function(glob, metadata=read)
    toolset.add_function(grep, metadata=read)
    toolset.add_function(execute, metadata={'effect': 'external'}, prepare=where_commands_run, sequential=True)
    return toolset


async def _place(ctx: RunContext[Files], path: str, *, to_read: bool = False) -> Place:
    with tool_failures(path):
        return await (ctx.deps.place_to_read(path) if to_read else ctx.deps.place(path))


def _approved_files(ctx: RunContext[Files]) -> Mapping[str, str | None]:
    """Return the files that a person was shown with the approval of this call, by canonical path, with their digests.

    `approvals` compares them before the call, but the call of another subagent may write in between.
    """
    answer = parse_answer(ctx.tool_call_metadata) if ctx.tool_call_approved else None
    request = parse_request(answer.request) if isinstance(answer, Approved | Edited) else None
    preview = request.preview if isinstance(request, CallRequest) else None
    return {} if preview is None else preview.files


def _show_media(place: Place, data: bytes, media_type: str) -> ToolReturn[list[str | BinaryContent]]:
    size = render_size(len(data))
    if len(data) > MAX_MEDIA_BYTES:
        raise ToolFailed(
            f'{place.shown} is {media_type} of {size}; at most {render_size(MAX_MEDIA_BYTES)} can be shown.'
        )
    return ToolReturn([f'{place.shown}: {media_type}, {size}', BinaryContent(data, media_type=media_type)])


def _encoding_note(text: Text) -> str:
    if text.encoding == 'utf-8' and not text.broken:
        return ''
    bytes_ = 'byte' if text.broken == 1 else 'bytes'
    broken = f', {text.broken:,} broken {bytes_} shown as \ufffd' if text.broken else ''
    return f'\n[encoding: {text.encoding}{broken}]'
