"""Preview the effect of a file tool call for a person who decides on it, without side effects or exceptions.

Writes and edits are computed by the functions of the tools, on the current contents, so encodings, line endings and
errors are the same as in the actual call. An expected error is shown in one line.

A preview binds if different contents would make it wrong: for whole files, for replacing all matches, and for errors.
The diff of a single edit remains valid as long as the edit finds its text.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import cache

from pydantic_ai import ToolDefinition
from pydantic_ai.exceptions import ModelRetry, ToolFailed

from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._messages.half_characters import join_halves
from pydantic_deep._text.encodings import parse_text
from pydantic_deep._text.line_diff import DiffView, view_diff
from pydantic_deep_backends.paths import display_path
from pydantic_deep_backends.resolving import canonical_path
from pydantic_deep_backends.snapshots import digest_of

from ._changes import decide_edit, decide_write, kind_of, refuse_command
from ._edit import AppliedEdit
from ._failures import tool_failures
from ._files import Files, Place
from ._render import render_size
from ._toolset import TOOLSET_ID, function_toolset, search_lines

WOULD_FAIL = 'This would fail and change nothing: '
"""Prefix of the preview of a call that would fail."""


async def preview_call(files: Files, tool_def: ToolDefinition, args: Mapping[str, object]) -> Preview | None:
    """Return the preview of a call; `None` for tools of other toolsets."""
    name = _function_name(tool_def)
    if name is None:
        return None
    touched: dict[str, str | None] = {}
    text, diff = '', None
    binds = name == 'write_file' or args.get('replace_all') is True
    kind = 'command' if name == 'execute' else 'diff' if name in ('write_file', 'edit_file') else 'call'
    failure = None
    try:
        match name:
            case 'execute':
                text = _argument(args, 'command')
                refuse_command(text, args.get('timeout_seconds'))
            case 'write_file':
                text, diff = await _write(files, touched, args)
            case 'edit_file':
                diff = await _edit(files, touched, args)
            case 'read_file':
                await _read(files, touched, args)
            case _:
                pass  # the files that a search will find are unknown, so none is listed, and no pattern allows the call
    except (ModelRetry, ToolFailed) as error:
        text, binds, failure = WOULD_FAIL + ' '.join(error.message.splitlines()), True, join_halves(error.message)
    return Preview(kind=kind, text=join_halves(text), diff=diff, files=touched, binds=binds, failure=failure)


async def written_file(
    files: Files,
    tool_def: ToolDefinition,
    args: Mapping[str, object],
    read: Callable[[str], Awaitable[bytes | None]],
) -> tuple[str, bytes | None] | None:
    """Return the path and the new contents of the file that a call writes; `None` for tools of other toolsets, and for
    invalid arguments.
    """
    name = _function_name(tool_def)
    if name not in ('write_file', 'edit_file'):
        return None
    try:
        path = _argument(args, 'path')
        with tool_failures(path):
            place = await files.place(path)
            canonical = await canonical_path(files.backend, path)
    except (ModelRetry, ToolFailed):
        return None
    before = after = await read(canonical)
    with suppress(ModelRetry, ToolFailed):  # a call that fails changes nothing
        if name == 'write_file':
            after, _ = decide_write(place, _argument(args, 'content'))(before, None)
        elif before is not None:
            after, _ = _decide_edit(args)(place, before)
    return canonical, after


async def read_paths(files: Files, tool_def: ToolDefinition, args: Mapping[str, object]) -> list[str] | None:
    """Return the canonical paths whose contents may be in the result of a call; `None` for commands and for tools of
    other toolsets. The error of a failed edit may contain lines of the file.
    """
    name = _function_name(tool_def)
    if name is None or name == 'execute':
        return None
    touched: dict[str, str | None] = {}
    with suppress(ModelRetry, ToolFailed):  # the tool reports the error
        if name != 'write_file':
            await _read(files, touched, args)
        if name == 'grep':
            await _search(files, touched, args)
    return list(touched)


async def _write(
    files: Files, touched: dict[str, str | None], args: Mapping[str, object]
) -> tuple[str, DiffView | None]:
    path, content = _argument(args, 'path'), _argument(args, 'content')
    with tool_failures(path):
        # The path is reported even if the call would fail from here on.
        touched[await canonical_path(files.backend, path)] = None
        place = await files.place(path)
        canonical, before, known = await files.look(place)
        touched[canonical] = None if before is None else digest_of(before)
    data, written = decide_write(place, content)(before, known)
    with tool_failures(place.path):
        await files.refuse_write(place, data)
    if data == before:
        return f'No change: {display_path(canonical)} already has these contents.', None
    old = parse_text(before) if before else None
    new = content.replace('\n', '\r\n') if written.crlf else content
    notes = ''
    if before and old is None:
        notes = f'All of {display_path(canonical)} is replaced: {kind_of(place, before)}, {render_size(len(before))}.'
    elif old is not None and old.encoding != written.encoding:
        notes = f'The encoding changes from {old.encoding} to {written.encoding}.'
    return notes, view_diff(canonical, None if before is None else '' if old is None else old.shown, new)


async def _edit(files: Files, touched: dict[str, str | None], args: Mapping[str, object]) -> DiffView:
    path = _argument(args, 'path')
    decide = _decide_edit(args)
    with tool_failures(path):
        touched[await canonical_path(files.backend, path)] = None
        place = await files.place(path)
    with tool_failures(place.path):
        canonical, before, _ = await files.look(place)
        touched[canonical] = None if before is None else digest_of(before)
        if before is None:
            await files.refuse_edit(place)
    data, edited = decide(place, before)
    with tool_failures(place.path):
        await files.refuse_write(place, data)
    old = parse_text(before)
    assert old is not None  # noqa: S101 - the edit would have failed otherwise
    return view_diff(canonical, old.shown, replace(old, text=edited.text).shown)


def _decide_edit(args: Mapping[str, object]) -> Callable[[Place, bytes], tuple[bytes, AppliedEdit]]:
    is_all = args.get('replace_all') is True
    return decide_edit(_argument(args, 'old_string'), _argument(args, 'new_string'), replace_all=is_all)


async def _read(files: Files, touched: dict[str, str | None], args: Mapping[str, object]) -> None:
    path = _argument(args, 'path', '.')
    with tool_failures(path):
        touched[await canonical_path(files.backend, path)] = None
        place = await files.place_to_read(path)
        touched[await place.backend.realpath(place.path)] = None


async def _search(files: Files, touched: dict[str, str | None], args: Mapping[str, object]) -> None:
    """Add the targets of links among the matching files. The search itself is repeated, as its result is a text."""
    glob = args.get('glob')
    place = await files.place_to_read(_argument(args, 'path', '.'))
    with tool_failures(place.path):
        found = await search_lines(place, _argument(args, 'pattern'), glob if isinstance(glob, str) else None)
        for path in found.counts:
            touched[await place.backend.realpath(path)] = None


def _argument(args: Mapping[str, object], name: str, default: str | None = None) -> str:
    value = args.get(name, default)
    if not isinstance(value, str):
        raise ModelRetry(f'{name} is missing or not a string.')
    return value


def _function_name(tool_def: ToolDefinition) -> str | None:
    """Return the name of our function that a tool calls, even if a wrapper renamed the tool."""
    if tool_def.toolset_id != TOOLSET_ID:
        return None
    names = _name_by_parameters()
    name = names.get(frozenset(tool_def.parameters_json_schema.get('properties', ())))
    return name or (tool_def.name if tool_def.name in names.values() else None)


@cache
def _name_by_parameters() -> dict[frozenset[str], str]:
    """Return the function names, keyed by their parameter names, which differ between all functions."""
    tools = function_toolset().tools
    return {frozenset(tool.function_schema.json_schema['properties']): name for name, tool in tools.items()}
