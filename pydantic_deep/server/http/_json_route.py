"""`JsonRoute`: a route that accepts only strict JSON (RFC 8259), so that its body can be stored and returned.

Python's parser also accepts `NaN`, numbers beyond the range of floats, and lone surrogates. None of these can be
encoded as JSON or UTF-8 again, and the failure would occur long after the request.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute
from pydantic_core import from_json


def parse_json(data: bytes) -> object:
    """Parse strict JSON.

    Raises:
        json.JSONDecodeError: The data is not valid JSON, is nested more than 200 levels deep, or contains a number or a
            string that cannot be encoded again.
    """
    try:
        from_json(data, allow_inf_nan=False)  # stricter than Python's parser, but less precise for numbers
        return json.loads(data, parse_float=_finite)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), '', 0) from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f'the number {text[:20]} is too large')
    return number


class _JsonRequest(Request):
    """A request with a strict `json` method."""

    async def json(self) -> Any:
        """Return the parsed body."""
        return parse_json(await self.body())


class JsonRoute(APIRoute):
    """A route with strict JSON: `APIRouter(route_class=JsonRoute)`. The name of its function is its operation id."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options['operation_id'] = endpoint.__name__
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler, with strict requests."""
        answer = super().get_route_handler()

        async def answer_strictly(request: Request) -> Response:
            return await answer(_JsonRequest(request.scope, request.receive))

        return answer_strictly
