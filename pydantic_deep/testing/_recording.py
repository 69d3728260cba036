"""The file of a recorded conversation: what it holds, how it is read and written, and how a request is found in it.

The format is described in the docstring of `pydantic_deep.testing`.
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
"""The version of what `Recording.save` writes."""

T = TypeVar('T')

_RESPONSE = TypeAdapter(ModelResponse)

_RESPONSE_FIELDS = ('model_name', 'provider_name', 'finish_reason')
"""What is kept of a response besides its parts and its usage."""


class RecordingFormatError(DeepAgentError, ValueError):
    """A file is no recording that this release can read.

    Attributes:
        path: The file.
    """

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        super().__init__(f'{str(path)!r} is no recording of format version {FORMAT_VERSION}: {reason}')


class _Strict(BaseModel):
    """A wire shape in which a misspelt key is an error."""

    model_config = ConfigDict(extra='forbid')


class RecordedModelFacts(_Strict):
    """What must be known of the model so that its requests come out the same without it."""

    name: str
    system: str = 'recorded'
    settings: JsonObject = Field(default_factory=dict)
    profile: JsonObject = Field(default_factory=dict)
    """Where its profile differs from pydantic-ai's default one; of it only what JSON holds."""


class Exchange(_Strict):
    """One request and its response."""

    follows: int | None = None
    instructions: int = 0
    tools: int = 0
    options: int = 0
    messages: list[JsonObject]
    response: JsonObject


class RecordingFile(_Strict):
    """The file as it is."""

    format: Literal['pydantic-deep.recording'] = 'pydantic-deep.recording'
    format_version: Literal[1] = 1
    model: RecordedModelFacts
    instructions: list[str | None] = Field(default_factory=list[str | None])
    tools: list[list[JsonObject]] = Field(default_factory=list[list[JsonObject]])
    options: list[JsonObject] = Field(default_factory=list[JsonObject])
    exchanges: list[Exchange] = Field(default_factory=list[Exchange])


@dataclass
class Recording:
    """Requests with their responses, in the order in which they were made."""

    file: RecordingFile
    requests: list[CanonicalRequest] = field(default_factory=list[CanonicalRequest], init=False)
    """The whole request of each exchange."""
    _exchange_by_history: dict[str, int] = field(default_factory=dict[str, int], init=False)
    """By the digest of a history that ends in a response: the exchange that ended it."""

    def __post_init__(self) -> None:
        for index, exchange in enumerate(self.file.exchanges):
            self._index(self._whole_request(index, exchange))

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a recording.

        Raises:
            RecordingFormatError: The file holds something else.
        """
        try:
            return cls(RecordingFile.model_validate_json(path.read_bytes()))
        except (ValidationError, LookupError) as error:
            raise RecordingFormatError(path, str(error)) from error

    def save(self, path: Path) -> None:
        """Write the recording, at once or not at all."""
        header = {'format': self.file.format, 'format_version': self.file.format_version}
        body = self.file.model_dump(exclude_defaults=True, exclude=set(header))
        temporary = path.with_name(f'.{path.name}.tmp')
        temporary.write_text(json.dumps({**header, **body}, ensure_ascii=False, indent=2) + '\n', 'utf-8')
        temporary.replace(path)

    def add(self, request: CanonicalRequest, response: ModelResponse) -> None:
        """Append an exchange; of its history, only what no exchange before it holds."""
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
        """Put a request together from what the file holds."""
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
        """Make the newest exchange findable."""
        index = len(self.requests)
        self.requests.append(request)
        self._exchange_by_history[chain_digests([*request.messages, self._canonical_response(index)])[-1]] = index

    def _canonical_response(self, index: int) -> JsonObject:
        return canonical_message(self.response(index))


def _place(items: list[T], item: T) -> int:
    """Return the index of an item, which is appended where it is new."""
    if item not in items:
        items.append(item)
    return items.index(item)


def _at(items: Sequence[T], index: int, default: T, name: str) -> T:
    """Return the item at an index that the file gave; of an empty list, the default."""
    if not items and index == 0:
        return default
    if not 0 <= index < len(items):
        raise IndexError(f'There are {len(items)} {name}, and an exchange names number {index}.')
    return items[index]


def _dump_response(response: ModelResponse) -> JsonObject:
    """Return what the file keeps of a response: no times, ids of providers or zeros."""
    dumped = cast(JsonObject, ModelMessagesTypeAdapter.dump_python([response], mode='json')[0])
    usage: JsonObject = {key: value for key, value in cast(JsonObject, dumped['usage']).items() if value}
    kept: JsonObject = {'parts': canonical_message(response, keep_bytes=True)['parts'], 'usage': usage}
    return kept | {key: dumped[key] for key in _RESPONSE_FIELDS if dumped[key] is not None}


def _load_response(kept: JsonObject) -> ModelResponse:
    """Return the response that the file keeps."""
    return _RESPONSE.validate_python({**kept, 'kind': 'response'})
