"""What one run works with: `DeepAgentDeps`, and the uploads in it.

All state of a run lives here, so that an agent object holds none and any number of users can share it.
Not here: how an agent sees the backend (`_workspace`), and what the model is told of it (the rooms).
"""

from __future__ import annotations

import dataclasses
import json
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self, cast, get_type_hints

from pydantic import JsonValue, TypeAdapter
from pydantic_ai.usage import UsageLimits
from pydantic_core import PydanticSerializationError

from pydantic_deep_backends import BackendProtocol, StateBackend
from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.paths import parse_path

from ._checks import check_name
from ._text.encodings import MAX_FILE_BYTES, count_lines, detect_encoding, guess_media_type
from .errors import DeepAgentError, InvalidUploadError, UploadNotFoundError, UploadTooLargeError
from .todos import Todo

__all__ = ('DeepAgentDeps', 'Upload')

UPLOADS = 'uploads'
"""The directory of uploads, below the backend's working directory."""

FORMAT_VERSION = 1
"""The version of what `to_json` writes."""


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file that a user gave, and what is known of it."""

    name: str
    """The name that it was given, relative to the uploads."""
    path: str
    """Where the agent finds it."""
    size_bytes: int
    """Its size."""
    encoding: str | None
    """The codec of a text; `None` for what is not text, or could not be told."""
    line_count: int | None
    """The number of lines of a text."""
    media_type: str
    """By the name first, then by the content; a name can be wrong."""


@dataclass(kw_only=True)
class DeepAgentDeps:
    """Everything that belongs to one user of a deep agent. Pass it to every `agent.run()`.

    Subclass it to add fields of your own (`@dataclass(kw_only=True)`). A field that cannot be written as JSON, such
    as a connection, is marked `field(metadata={'live': True})` and stays behind in `to_json`.
    """

    backend: BackendProtocol = field(default_factory=StateBackend, metadata={'live': True})
    """Where the agent's files live. By default in memory, gone with this object."""
    todos: list[Todo] = field(default_factory=list[Todo])
    """The plan, as the model wrote it last."""
    uploads: dict[str, Upload] = field(default_factory=dict[str, Upload])
    """The files that the user gave, by name."""
    subagents: dict[str, object] = field(default_factory=dict[str, object], metadata={'live': True})
    """Subagents that were built, by name; they are made again when missing."""
    usage_limits: UsageLimits | None = None
    """What a run may use. pydantic-ai takes limits as an argument of `run`: pass `usage_limits=deps.usage_limits`."""
    metadata: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """What you want to keep with the run; nothing here reads it."""
    max_depth: int | None = None
    """How many levels of subagents may be below this run, 0 for none. `None` is as deep as subagents are declared: one
    that declares subagents of its own can call them, and one that does not has none."""

    _offload: StateBackend = field(default_factory=StateBackend, init=False, repr=False, metadata={'live': True})
    _format: ClassVar[str] = 'pydantic-deep.deps'

    def __post_init__(self) -> None:
        """Refuse a depth that is none.

        Raises:
            ValueError: `max_depth` is neither `None` nor a number, or below 0.
        """
        if self.max_depth is not None and (not isinstance(cast('object', self.max_depth), int) or self.max_depth < 0):
            raise ValueError(
                f'{type(self).__name__}(max_depth={self.max_depth!r}): pass how many levels of subagents there may be, '
                '0 for none, or None for as many as are declared.'
            )

    async def upload(self, name: str, data: bytes) -> Upload:
        """Write a file below the uploads of the backend, and remember what it is.

        An upload of the same name is replaced.

        Args:
            name: A file name, or a relative path such as `2026/sales.csv`.
            data: The contents.

        Raises:
            InvalidUploadError: The name is empty, absolute, or leaves the uploads.
            UploadTooLargeError: The contents have more than `MAX_FILE_BYTES`, so that no version could have them.
            TypeError: The contents are no bytes.
        """
        if not isinstance(cast('object', data), bytes | bytearray | memoryview):
            raise TypeError(f'`data` is {type(data).__name__}. Pass bytes: encode a text with `.encode()`.')
        size_bytes = memoryview(data).nbytes
        if size_bytes > MAX_FILE_BYTES:
            raise UploadTooLargeError(name, size_bytes, MAX_FILE_BYTES)
        root = f'{(await self.backend.working_dir()).rstrip("/")}/{UPLOADS}'
        path = root + _parse_name(name)
        encoding = detect_encoding(data)
        await self.backend.write_bytes(path, data)
        upload = Upload(
            name=path[len(root) + 1 :],
            path=path,
            size_bytes=len(data),
            encoding=encoding,
            line_count=count_lines(data, encoding),
            media_type=guess_media_type(name, data, encoding),
        )
        self.uploads[upload.name] = upload
        return upload

    async def remove_upload(self, name: str) -> None:
        """Forget an upload, and remove its file if it is still there.

        Args:
            name: The name of the upload, as in `uploads`.

        Raises:
            UploadNotFoundError: There is no upload of that name.
        """
        check_name('name', name)
        if name not in self.uploads:
            raise UploadNotFoundError(name)
        with suppress(FileNotFoundError):  # an agent may have removed or moved it
            await self.backend.remove(self.uploads[name].path)
        del self.uploads[name]

    def clone_for_subagent(self, max_depth: int | None = 0) -> Self:
        """Return deps for a subagent: empty todos and subagents, the same backend and the same uploads.

        Args:
            max_depth: How many levels of subagents the subagent may have below it; `None` for as many as it declares.
        """
        return dataclasses.replace(self, todos=[], subagents={}, max_depth=max_depth).with_offload(self._offload)

    def with_offload(self, offload: StateBackend) -> Self:
        """Take the backend with the large results of tools, and return these deps: for what keeps or copies deps."""
        self._offload = offload
        return self

    def to_json(self) -> str:
        """Return everything except live handles as JSON: not the backend, the subagents, and offloaded results.

        Raises:
            DeepAgentError: A field holds what JSON cannot.
        """
        fields = {name: self._dump(name, adapter) for name, adapter in _adapters(type(self)).items()}
        document = {'format': self._format, 'format_version': FORMAT_VERSION, **fields}
        try:
            return json.dumps(document, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise DeepAgentError('The deps hold NaN or infinity, which JSON cannot. Use None instead.') from None

    @classmethod
    def from_json(cls, text: str | bytes, **live: object) -> Self:
        """Return deps from what `to_json` wrote.

        Args:
            text: The JSON.
            **live: The handles that JSON cannot hold, such as `backend=`; one that is left out has its default.

        Raises:
            DeepAgentError: The text was not written by `to_json` of this class, or by a newer version of it.
        """
        values = _parse_document(text)
        version = values.pop('format_version', None)
        if values.pop('format', None) != cls._format or not isinstance(version, int):
            raise DeepAgentError('This is not what `DeepAgentDeps.to_json` wrote. Pass its text unchanged.')
        if version > FORMAT_VERSION:
            raise DeepAgentError(
                f'These deps have format version {version}, and this release reads up to {FORMAT_VERSION}. '
                'Upgrade pydantic-deep.'
            )
        adapters = _adapters(cls)
        foreign = sorted(values.keys() - adapters.keys())
        if foreign:
            raise DeepAgentError(f'{cls.__name__} has no {", ".join(foreign)}. Use the class that wrote these deps.')
        try:
            known = {name: adapters[name].validate_python(value) for name, value in values.items()}
            return cls(**cast('dict[str, Any]', known | live))
        except (ValueError, TypeError) as error:
            raise DeepAgentError(f'These are no {cls.__name__}: {error}') from error

    def _dump(self, name: str, adapter: TypeAdapter[object]) -> object:
        try:
            return adapter.dump_python(getattr(self, name), mode='json')
        except (PydanticSerializationError, UnicodeDecodeError) as error:  # bytes are written as UTF-8
            raise DeepAgentError(
                f"JSON cannot hold the field {name!r}: {error}. Mark it `field(metadata={{'live': True}})` to leave it out."
            ) from error


def offload_of(deps: DeepAgentDeps) -> StateBackend:
    """Return the backend with the large results of tools, which `to_json` leaves out."""
    return deps._offload  # pyright: ignore[reportPrivateUsage] - of a class of this file


def _parse_name(name: str) -> str:
    """Return the name as an absolute path below the uploads."""
    if not isinstance(cast('object', name), str):
        check_name('name', name)
    if not name.strip():
        raise InvalidUploadError(name, 'it is empty. Use a file name.')
    if name.startswith('/'):
        raise InvalidUploadError(name, 'it is absolute. Use a file name or a relative path.')
    try:
        path = parse_path(f'/{name}')
    except InvalidPathError as error:
        reason = 'it leaves the uploads. Leave out `..`.' if '..' in name.split('/') else error.reason
        raise InvalidUploadError(name, reason) from None
    if path == '/':
        raise InvalidUploadError(name, 'it is the directory of the uploads. Use a file name.')
    return path


def _parse_document(text: str | bytes) -> dict[str, object]:
    try:
        document: object = json.loads(text)
    except ValueError:
        document = None
    return cast('dict[str, object]', document) if isinstance(document, dict) else {}


@cache
def _adapters(deps_type: type[DeepAgentDeps]) -> dict[str, TypeAdapter[object]]:
    """Return an adapter for each field that JSON holds."""
    hints = get_type_hints(deps_type)
    return {
        f.name: TypeAdapter[object](hints[f.name])
        for f in dataclasses.fields(deps_type)
        if not f.metadata.get('live', False)
    }
