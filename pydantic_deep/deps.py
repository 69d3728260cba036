"""`DeepAgentDeps`, the state of a run, and its uploads.

All state of a run is in its deps, so that an agent is stateless and can be shared by any number of users. `_workspace`
connects deps with an agent; the capabilities describe their contents to the model.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar, Self, cast, get_type_hints

from pydantic import JsonValue, PydanticSchemaGenerationError, TypeAdapter
from pydantic_ai.usage import UsageLimits
from pydantic_core import PydanticSerializationError
from typing_extensions import TypeIs

from pydantic_deep_backends import BackendProtocol, StateBackend
from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.paths import parse_path

from ._checks import LIMIT_USAGE, check_name, check_object
from ._text.encodings import MAX_FILE_BYTES, count_lines, detect_encoding, guess_media_type
from .errors import DeepAgentError, InvalidUploadError, UploadNotFoundError, UploadTooLargeError
from .todos import Todo

__all__ = ('DeepAgentDeps', 'Upload')

UPLOADS = 'uploads'
"""The directory of uploads, relative to the backend's working directory."""

FORMAT_VERSION = 1
"""The format version that `to_json` writes."""


_OMIT_FIELD = "Mark it `field(metadata={'live': True})` to omit it."


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A file that a user uploaded."""

    name: str
    """The name, relative to the directory of uploads."""
    path: str
    """The path where the agent finds the file."""
    size_bytes: int
    """The size in bytes."""
    encoding: str | None
    """The encoding of a text file; `None` for other files, or if it is unknown."""
    line_count: int | None
    """The number of lines of a text file; `None` for other files."""
    media_type: str
    """The media type, derived from the name or otherwise from the content. It may be wrong if the name is misleading.
    """


@dataclass(kw_only=True)
class DeepAgentDeps:
    """The state of one user of a deep agent. Pass it to every `agent.run()`.

    Subclass it to add fields (`@dataclass(kw_only=True)`). Mark a field that cannot be represented as JSON, such as a
    connection, with `field(metadata={'live': True})`; `to_json` omits it.
    """

    backend: BackendProtocol = field(default_factory=StateBackend, metadata={'live': True})
    """The backend with the agent's files. The default one is in memory and lasts as long as this object."""
    todos: list[Todo] = field(default_factory=list[Todo])
    """The todo list that the model wrote."""
    uploads: dict[str, Upload] = field(default_factory=dict[str, Upload])
    """The files that the user uploaded, keyed by name."""
    subagents: dict[str, object] = field(default_factory=dict[str, object], metadata={'live': True})
    """Cached agents of subagents, keyed by name. They are rebuilt if missing."""
    usage_limits: UsageLimits | None = None
    """Usage limits. pydantic-ai takes them as an argument: pass `usage_limits=deps.usage_limits` to `run`."""
    metadata: dict[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Your own values for the run. The framework does not use them."""
    max_depth: int | None = None
    """Maximum number of levels of subagents below this run, 0 for none. `None` allows as many as are declared: a
    subagent can call the subagents that it declares itself.
    """

    _offload: StateBackend = field(default_factory=StateBackend, init=False, repr=False, metadata={'live': True})
    _format: ClassVar[str] = 'pydantic-deep.deps'

    def __post_init__(self) -> None:
        """Validate the fields.

        Raises:
            ValueError: `max_depth` is neither `None` nor a number, or below 0.
            ValidationError: Another field has the wrong type.
        """
        check_object('todos', self.todos, list, 'Pass a list of `Todo`.')
        for todo in self.todos:
            check_object('todos', todo, Todo, 'Pass a list of `Todo`.')
        check_object('uploads', self.uploads, Mapping, 'Pass a dictionary.')
        for upload in self.uploads.values():
            check_object('uploads', upload, Upload, 'Use `await deps.upload(name, data)`.')
        check_object('subagents', self.subagents, Mapping, 'Pass a dictionary.')
        check_object('metadata', self.metadata, Mapping, 'Pass a dictionary.')
        if self.usage_limits is not None:
            check_object('usage_limits', self.usage_limits, UsageLimits, LIMIT_USAGE)
        if self.max_depth is not None and (type(cast('object', self.max_depth)) is not int or self.max_depth < 0):
            raise ValueError(
                f'{type(self).__name__}(max_depth={self.max_depth!r}): pass the maximum number of levels of subagents, '
                '0 for none, or None for as many as are declared.'
            )

    async def upload(self, name: str, data: bytes) -> Upload:
        """Write a file to the backend's directory of uploads, and add it to `uploads`.

        An upload with the same name is replaced.

        Args:
            name: A file name, or a relative path such as `2026/sales.csv`.
            data: The contents.

        Raises:
            InvalidUploadError: The name is empty, absolute, or outside of the directory of uploads, or it is a directory
                or below a file.
            UploadTooLargeError: The contents exceed `MAX_FILE_BYTES`, the maximum size of a file in a version.
            TypeError: The contents are not bytes.
        """
        if not isinstance(cast('object', data), bytes | bytearray | memoryview):
            raise TypeError(f'`data` is {type(data).__name__}. Pass bytes: encode text with `.encode()`.')
        size_bytes = memoryview(data).nbytes
        if size_bytes > MAX_FILE_BYTES:
            raise UploadTooLargeError(name, size_bytes, MAX_FILE_BYTES)
        root = f'{(await self.backend.working_dir()).rstrip("/")}/{UPLOADS}'
        path = root + _parse_name(name)
        encoding = detect_encoding(data)
        try:
            await self.backend.write_bytes(path, data)
        except IsADirectoryError:
            raise InvalidUploadError(name, 'it is a directory. Use another name.') from None
        except NotADirectoryError:
            raise InvalidUploadError(name, 'a parent of it is a file. Use another name.') from None
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
        """Remove an upload, and its file if it still exists.

        Args:
            name: The name of the upload, as in `uploads`.

        Raises:
            UploadNotFoundError: No upload has this name.
        """
        check_name('name', name)
        if name not in self.uploads:
            raise UploadNotFoundError(name)
        with suppress(FileNotFoundError):  # an agent may have deleted or moved it
            await self.backend.remove(self.uploads[name].path)
        del self.uploads[name]

    def clone_for_subagent(self, max_depth: int | None = 0) -> Self:
        """Return deps for a subagent: with empty todos and subagents, and the same backend and uploads.

        Args:
            max_depth: Maximum number of levels of subagents below the subagent; `None` for as many as it declares.
        """
        return dataclasses.replace(self, todos=[], subagents={}, max_depth=max_depth).with_offload(self._offload)

    def with_offload(self, offload: StateBackend) -> Self:
        """Set the backend of offloaded tool results, and return these deps. Used when deps are stored or copied."""
        self._offload = offload
        return self

    def to_json(self) -> str:
        """Return all fields as JSON except live ones. The backend, the subagents and offloaded results are omitted.

        Raises:
            DeepAgentError: JSON cannot represent the value of a field.
        """
        fields = {name: self._dump(name, adapter) for name, adapter in _adapters(type(self)).items()}
        document = {'format': self._format, 'format_version': FORMAT_VERSION, **fields}
        try:
            return json.dumps(document, ensure_ascii=False, allow_nan=False)
        except ValueError:
            raise DeepAgentError(
                'The deps contain NaN or infinity, which JSON cannot represent. Use None instead.'
            ) from None

    @classmethod
    def from_json(cls, text: str | bytes, **live: object) -> Self:
        """Return deps from the result of `to_json`.

        Args:
            text: The JSON.
            **live: The live fields, such as `backend=`. Those that are omitted have their default.

        Raises:
            DeepAgentError: The text was not written by `to_json` of this class, or has a newer format.
        """
        values = _parse_document(text)
        version = values.pop('format_version', None)
        if values.pop('format', None) != cls._format or not isinstance(version, int):
            raise DeepAgentError('This text was not written by `DeepAgentDeps.to_json`. Pass its result unchanged.')
        if version > FORMAT_VERSION:
            raise DeepAgentError(
                f'These deps have format version {version}, but this release reads up to {FORMAT_VERSION}. '
                'Upgrade pydantic-deep.'
            )
        adapters = _adapters(cls)
        unknown = sorted(values.keys() - adapters.keys())
        if unknown:
            raise DeepAgentError(f'{cls.__name__} has no {", ".join(unknown)}. Use the class that wrote these deps.')
        try:
            known = {name: adapters[name].validate_python(value) for name, value in values.items()}
            return cls(**cast('dict[str, Any]', known | live))
        except (ValueError, TypeError) as error:
            raise DeepAgentError(f'These are not valid {cls.__name__}: {error}') from error

    def _dump(self, name: str, adapter: TypeAdapter[object]) -> object:
        try:
            return adapter.dump_python(getattr(self, name), mode='json')
        except (PydanticSerializationError, UnicodeDecodeError) as error:  # bytes are decoded as UTF-8
            raise DeepAgentError(f'JSON cannot represent the field {name!r}: {error}. {_OMIT_FIELD}') from error


def is_deps_type(value: object) -> TypeIs[type[DeepAgentDeps]]:
    """Return whether the `deps_type` of an agent, which may also be a generic type, is `DeepAgentDeps` or a subclass."""
    return isinstance(value, type) and issubclass(value, DeepAgentDeps)


def offload_of(deps: DeepAgentDeps) -> StateBackend:
    """Return the backend of offloaded tool results, which `to_json` omits."""
    return deps._offload  # pyright: ignore[reportPrivateUsage] - of a class of this file


def _parse_name(name: str) -> str:
    """Return the absolute path of an upload name, below the directory of uploads."""
    if not isinstance(cast('object', name), str):
        check_name('name', name)
    if not name.strip():
        raise InvalidUploadError(name, 'it is empty. Use a file name.')
    if name.startswith('/'):
        raise InvalidUploadError(name, 'it is absolute. Use a file name or a relative path.')
    try:
        path = parse_path(f'/{name}')
    except InvalidPathError as error:
        reason = 'it is outside of the uploads. Remove `..`.' if '..' in name.split('/') else error.reason
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
    """Return an adapter for each field that is included in JSON.

    Raises:
        DeepAgentError: The type of a field, included or not, is not defined at run time, or JSON cannot represent that
            of an included one.
    """
    try:
        hints = get_type_hints(deps_type)
    except NameError as error:
        raise DeepAgentError(
            f'The types of the fields of {deps_type.__name__} are needed at run time: {error}. Import it outside of '
            '`if TYPE_CHECKING:`, and define it in a module.'
        ) from error
    return {
        f.name: _adapter(f.name, hints[f.name])
        for f in dataclasses.fields(deps_type)
        if not f.metadata.get('live', False)
    }


def _adapter(name: str, kind: Any) -> TypeAdapter[object]:
    try:
        return TypeAdapter[object](kind)
    except PydanticSchemaGenerationError as error:
        raise DeepAgentError(
            f'JSON cannot represent the type of the field {name!r}, {kind!r}. {_OMIT_FIELD}'
        ) from error
