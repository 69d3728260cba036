"""The error of the client."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import JsonValue

from pydantic_deep.errors import DeepAgentError


class ApiError(DeepAgentError):
    """The server refused a request, answered something unexpected, or did not answer.

    Attributes:
        message: The cause and the remedy, in the words of the server if it answered.
        status: The HTTP status; `None` if the server did not answer, so that it is unknown whether the request had an
            effect.
        type: The type of the error, such as `not_found` or `conflict`; `None` if the answer was not in the format of
            the server.
        facts: Additional fields of the error, such as the `conflicts` of a merge.
        retry_after_seconds: How long to wait before another request, if the server requires it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str | None = None,
        facts: Mapping[str, JsonValue] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        self.message = message
        self.status = status
        self.type = type
        self.facts: dict[str, JsonValue] = dict(facts or {})
        self.retry_after_seconds = retry_after_seconds
        super().__init__(message if status is None else f'{message} (HTTP {status})')
