"""Record and replay real model responses: `RecordingModel` writes a file, and `RecordedModel` replays it.

`_requests.canonical_request` defines when two requests are equal; `_recording` reads and writes the file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast, get_args

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import KnownModelName, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile
from pydantic_ai.settings import ModelSettings

from pydantic_deep._checks import check_choice
from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep._requests.canonical_request import (
    CanonicalRequest,
    JsonObject,
    Match,
    canonical_request,
    canonical_settings,
    nearest,
)
from pydantic_deep.errors import DeepAgentError

from ._recording import RecordedModelFacts, Recording, RecordingFile
from ._request_diff import diff_requests


class RecordedRequestError(DeepAgentError, AssertionError):
    """A request is not in the recording.

    Attributes:
        path: The path of the recording.
        exchange: The index of the most similar recorded exchange; `None` if the recording is empty.
        diff: A unified diff from the recorded request to the actual one.
    """

    def __init__(self, path: Path, exchange: int | None, count: int, diff: str) -> None:
        self.path = path
        self.exchange = exchange
        self.diff = diff
        hint = 'It is empty.' if exchange is None else f'The most similar exchange is {exchange} (of 0 to {count - 1}).'
        super().__init__(
            f'{str(path)!r} has no response to this request. {hint} '
            f'If the change is intended, record the conversation again with `RecordingModel`.\n{diff}'
        )


class RecordingModel(WrapperModel):
    """A model wrapper that records requests and responses in a file, for `RecordedModel` to replay.

    The file is overwritten at the first response and rewritten after each one. It contains everything that the model
    receives and generates in clear text, so read it before you share it. Failed and incomplete responses are not
    recorded.
    """

    def __init__(self, wrapped: Model | KnownModelName, path: str | Path) -> None:
        """Record a model.

        Args:
            wrapped: The model that responds. Wrap a `ScriptedModel` to write a recording by hand, with real requests.
            path: The file. Its directory must exist.
        """
        super().__init__(wrapped)
        self.path: Path = Path(path)
        self._recording = Recording(RecordingFile(model=_facts(self.wrapped)))

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Request a response, and record it."""
        asked = canonical_request(messages, model_settings, model_request_parameters)
        response = await super().request(messages, model_settings, model_request_parameters)
        self._record(asked, response)
        return response

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: RunContext[Any] | None = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Stream a response, and record it once it is complete."""
        asked = canonical_request(messages, model_settings, model_request_parameters)
        async with super().request_stream(messages, model_settings, model_request_parameters, run_context) as stream:
            yield stream
            response = stream.get()
        if response.state == 'complete':
            self._record(asked, response)

    def _record(self, asked: CanonicalRequest, response: ModelResponse) -> None:
        self._recording.add(asked, response)
        self._recording.save(self.path)


class RecordedModel(CannedModel):
    """A model that replays a recording: each recorded request gets its recorded response.

    A request is looked up by a digest of its instructions, tools, settings and complete history. So any number of runs
    can replay a recording concurrently, in any order, streamed or not; and a changed prompt raises an error with a
    diff. If a request was recorded several times, its responses are returned in order, and the last one is repeated.

    `match='prompt'` ignores the contents and outcomes of tool results, for conversations about files that differ
    between machines. The recorded responses may then contradict the actual tool results.
    """

    def __init__(self, path: str | Path, *, match: Match = 'everything') -> None:
        """Read a recording.

        Args:
            path: The file that `RecordingModel` wrote.
            match: The parts of a request that must match.

        Raises:
            ValidationError: `match` has another value.
            RecordingFormatError: The file is not a recording.
            OSError: The file cannot be read.
        """
        check_choice('match', match, get_args(Match))
        self.path: Path = Path(path)
        self._match: Match = match
        self._recording = Recording.load(self.path)
        facts = self._recording.file.model
        super().__init__(
            settings=cast(ModelSettings, facts.settings) or None, profile=cast(ModelProfile, facts.profile)
        )
        self._requests = [request.for_matching(match) for request in self._recording.requests]
        self._exchanges_by_request: dict[str, list[int]] = {}
        for index, request in enumerate(self._requests):
            self._exchanges_by_request.setdefault(_key(request), []).append(index)
        self._asked: Counter[str] = Counter()

    @property
    def remaining(self) -> int:
        """The number of recorded exchanges that were not requested; 0 after a complete replay."""
        return sum(max(len(known) - self._asked[key], 0) for key, known in self._exchanges_by_request.items())

    @property
    def model_name(self) -> str:
        """The name of the recorded model."""
        return self._recording.file.model.name

    @property
    def system(self) -> str:
        """The provider of the recorded model."""
        return self._recording.file.model.system

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return the recorded response.

        Raises:
            RecordedRequestError: The request was not recorded.
        """
        request = canonical_request(messages, settings, parameters).for_matching(self._match)
        key = _key(request)
        known = self._exchanges_by_request.get(key)
        if known is None:
            raise self._unknown(request)
        self._asked[key] += 1
        return self._recording.response(known[min(self._asked[key], len(known)) - 1])

    def _unknown(self, request: CanonicalRequest) -> RecordedRequestError:
        index = nearest(self._requests, request)
        diff = '' if index is None else diff_requests(self._requests[index], request)
        return RecordedRequestError(self.path, index, len(self._requests), diff)


def _key(request: CanonicalRequest) -> str:
    """Return the lookup key of a request."""
    return f'{request.head_digest()} {request.chain()[-1]}'


def _facts(model: Model) -> RecordedModelFacts:
    """Return the properties of a model that a recording stores."""
    return RecordedModelFacts(
        name=model.model_name,
        system=model.system,
        settings=canonical_settings(model.settings),
        profile=_special(model.profile),
    )


def _special(profile: ModelProfile) -> JsonObject:
    """Return the values of a profile that differ from the default, if JSON can represent them."""
    default = cast(Mapping[str, object], DEFAULT_PROFILE)
    return {
        key: value
        for key, value in profile.items()
        if (value is None or isinstance(value, (bool, int, str))) and value != default.get(key)
    }
