"""The file of a recorded conversation: its schema, reading and writing, and looking up requests.

The docstring of `pydantic_deep.testing` describes the format.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Self, TypeVar, cast

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse

from pydantic_deep._requests.canonical_request import CanonicalRequest, JsonObject, canonical_message, chain_digests
from pydantic_deep.errors import DeepAgentError

FORMAT_VERSION = 1
"""The format version that `Recording.save` writes."""

T = TypeVar('T')

_RESPONSE = TypeAdapter(ModelResponse)

_RESPONSE_FIELDS = ('model_name', 'provider_name', 'finish_reason')
"""The fields of a response that are stored in addition to its parts and usage."""


class RecordingFormatError(DeepAgentError, ValueError):
    """The file is not a recording that this release can read.

    Attributes:
        path: The path of the file.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f'{str(path)!r} is not a recording of format version {FORMAT_VERSION}: {reason}')


class _Strict(BaseModel):
    """Base of the models of the file, which reject unknown keys."""

    model_config = ConfigDict(extra='forbid')


class RecordedModelFacts(_Strict):
    """The properties of a model that its requests depend on."""

    name: str
    system: str = 'recorded'
    settings: JsonObject = Field(default_factory=dict)
    profile: JsonObject = Field(default_factory=dict)
    """Values of the profile that differ from pydantic-ai's default, if JSON can represent them."""


class Exchange(_Strict):
    """One request and its response."""

    follows: int | None = None
    instructions: int = 0
    tools: int = 0
    options: int = 0
    messages: list[JsonObject]
    response: JsonObject


class RecordingFile(_Strict):
    """The contents of the file."""

    format: Literal['pydantic-deep.recording'] = 'pydantic-deep.recording'
    format_version: Literal[1] = 1
    model: RecordedModelFacts
    instructions: list[str | None] = Field(default_factory=list[str | None])
    tools: list[list[JsonObject]] = Field(default_factory=list[list[JsonObject]])
    options: list[JsonObject] = Field(default_factory=list[JsonObject])
    exchanges: list[Exchange] = Field(default_factory=list[Exchange])


@dataclass
class Recording:
    """Requests and their responses, in the order of recording."""

    file: RecordingFile
    requests: list[CanonicalRequest] = field(default_factory=list[CanonicalRequest], init=False)
    """The complete request of each exchange."""
    _exchange_by_history: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """The exchange that produced a history, keyed by the digest of the history up to its response."""

    def __post_init__(self) -> None:
        for index, exchange in enumerate(self.file.exchanges):
            self._index(self._whole_request(index, exchange))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a recording.

        Raises:
            RecordingFormatError: The file is not a valid recording.
        """
        try:
            return cls(RecordingFile.model_validate_json(path.read_bytes()))
        except (ValidationError, LookupError) as error:
            raise RecordingFormatError(path, str(error)) from error

    def save(self, path: Path) -> None:
        """Write the recording atomically."""
        header = {'format': self.file.format, 'format_version': self.file.format_version}
        body = self.file.model_dump(exclude_defaults=True, exclude=set(header))
        temporary = path.with_name(f'.{path.name}.tmp')
        temporary.write_text(json.dumps({**header, **body}, ensure_ascii=False, indent=2) + '\n', 'utf-8')
        temporary.replace(path)

    def add(self, request: CanonicalRequest, response: ModelResponse) -> None:
        """Append an exchange, storing only messages that no earlier exchange contains."""
        chain = request.chain()
        known = [length for length, key in enumerate(chain) if key in self._exchange_by_history]
        length = known[-1] if known else 0
        exchange = Exchange(
            follows=self._exchange_by_history[chain[length]] if known else None,
            instructions=_place(self.file.instructions, request.instructions),
            tools=_place(self.file.tools, request.tools),
            options=_place(self.file.options, request.options),
            messages=request.messages[length:],
            response=_dump_response(response),
        )
        self.file.exchanges.append(exchange)
        self._index(request)

    def response(self, index: int) -> ModelResponse:
        """Return the response of an exchange, as a new object."""
        return _load_response(self.file.exchanges[index].response)

    def _whole_request(self, index: int, exchange: Exchange) -> CanonicalRequest:
        """Return the complete request of an exchange."""
        before: list[JsonObject] = []
        if exchange.follows is not None:
            if not 0 <= exchange.follows < index:
                raise IndexError(f'Exchange {index} follows {exchange.follows}, which is not before it.')
            before = [*self.requests[exchange.follows].messages, self._canonical_response(exchange.follows)]
        return CanonicalRequest(
            instructions=_at(self.file.instructions, exchange.instructions, None, 'instructions'),
            tools=_at(self.file.tools, exchange.tools, [], 'tools'),
            options=_at(self.file.options, exchange.options, {'output_mode': 'text'}, 'options'),
            messages=[*before, *exchange.messages],
        )

    def _index(self, request: CanonicalRequest) -> None:
        """Add the newest exchange to the index."""
        index = len(self.requests)
        self.requests.append(request)
        self._exchange_by_history[chain_digests([*request.messages, self._canonical_response(index)])[-1]] = index

    def _canonical_response(self, index: int) -> JsonObject:
        return canonical_message(self.response(index))


def _place(items: list[T], item: T) -> int:
    """Return the index of an item, appending it if it is new."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _at(items: Sequence[T], index: int, default: T, name: str) -> T:
    """Return the item at an index from the file, or the default if the list is empty."""
    if not items and index == 0:
        return default
    if not 0 <= index < len(items):
        raise IndexError(f'An exchange refers to {name} {index}, but there are only {len(items)}.')
    return items[index]


def _dump_response(response: ModelResponse) -> JsonObject:
    """Return the stored form of a response, without times, provider ids and zeros."""
    dumped = cast(JsonObject, ModelMessagesTypeAdapter.dump_python([response], mode='json')[0])
    usage: JsonObject = {key: value for key, value in cast(JsonObject, dumped['usage']).items() if value}
    stored: JsonObject = {'parts': canonical_message(response, keep_bytes=True)['parts'], 'usage': usage}
    return stored | {key: dumped[key] for key in _RESPONSE_FIELDS if dumped[key] is not None}


def _load_response(stored: JsonObject) -> ModelResponse:
    """Return the response of its stored form."""
    return _RESPONSE.validate_python({**stored, 'kind': 'response'})
