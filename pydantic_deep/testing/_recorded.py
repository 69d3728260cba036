"""Real model traffic: `RecordingModel` writes it to a file, `RecordedModel` plays it without a model.

Not here: what makes two requests the same (`_requests.canonical_request`), and the file (`_recording`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models import KnownModelName, Model, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.profiles import DEFAULT_PROFILE, ModelProfile
from pydantic_ai.settings import ModelSettings

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
        path: The recording.
        exchange: The index of the recorded exchange that is most like the request; `None` in an empty recording.
        diff: A unified diff from the request recorded there to the request that was made.
    """

    def __init__(self, path: Path, exchange: int | None, count: int, diff: str) -> None:
        self.path = path
        self.exchange = exchange
        self.diff = diff
        nearest_text = (
            'It is empty.' if exchange is None else f'Most like it is exchange {exchange} (of 0 to {count - 1}).'
        )
        super().__init__(
            f'{str(path)!r} has no answer to this request. {nearest_text} '
            f'If the change is meant, record the conversation again with `RecordingModel`.\n{diff}'
        )


class RecordingModel(WrapperModel):
    """A model that writes what another one is asked and answers into a file, for `RecordedModel` to play.

    The file begins anew with the first answer, holds every answer as soon as it came, and is written whole each time.
    Everything that the model reads and says is in it, in clear: read it before you share it. An answer that failed or
    was left before its end is not recorded.
    """

    def __init__(self, wrapped: Model | KnownModelName, path: str | Path) -> None:
        """Record a model.

        Args:
            wrapped: The model that answers. Wrap a `ScriptedModel` to write a recording by hand, with the real
                requests in it.
            path: The file; its directory must exist.
        """
        super().__init__(wrapped)
        self.path = Path(path)
        self._recording = Recording(RecordingFile(model=_facts(self.wrapped)))

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        """Ask the model, and record the answer."""
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
        """Ask the model, and record the answer once it is complete."""
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
    """A model that plays a recorded conversation: to a request that was recorded, the answer that was recorded.

    A request is looked up by a digest of all that it says: instructions, tools, settings and the whole history. So
    any number of runs can play one recording at once, in any order, streamed or not, however it was recorded; and a
    changed prompt is an error that shows the difference. Where one request was recorded several times its answers are
    given in order, and the last one again.

    `match='prompt'` leaves the results of tools out of the comparison (their contents and whether they failed), for
    conversations over files that differ from machine to machine. The recorded answers are then played whatever the
    tools found: what the model says about results may be wrong, only what tools compute is true.
    """

    def __init__(self, path: str | Path, *, match: Match = 'everything') -> None:
        """Read a recording.

        Args:
            path: The file that `RecordingModel` wrote.
            match: What of a request must be as recorded.

        Raises:
            RecordingFormatError: The file is no recording.
            OSError: The file cannot be read.
        """
        self.path = Path(path)
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
        """How many recorded exchanges were not asked for; 0 when the recording was played to its end."""
        return sum(max(len(known) - self._asked[key], 0) for key, known in self._exchanges_by_request.items())

    @property
    def model_name(self) -> str:
        """The model that was recorded."""
        return self._recording.file.model.name

    @property
    def system(self) -> str:
        """The provider that was recorded."""
        return self._recording.file.model.system

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return what was recorded.

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
    """Return what a request is looked up by."""
    return f'{request.head_digest()} {request.chain()[-1]}'


def _facts(model: Model) -> RecordedModelFacts:
    """Return what a recording keeps of a model."""
    return RecordedModelFacts(
        name=model.model_name,
        system=model.system,
        settings=canonical_settings(model.settings),
        profile=_special(model.profile),
    )


def _special(profile: ModelProfile) -> JsonObject:
    """Return where a profile differs from the default one, as far as JSON holds it."""
    default = cast(Mapping[str, object], DEFAULT_PROFILE)
    return {
        key: value
        for key, value in profile.items()
        if (value is None or isinstance(value, (bool, int, str))) and value != default.get(key)
    }
