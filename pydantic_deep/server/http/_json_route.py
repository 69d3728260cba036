"""`JsonRoute`: a route whose body is JSON in the strict sense (RFC 8259), so that all of it can be kept and told again.

Python's parser takes more: `NaN`, numbers beyond any float, halves of surrogate pairs. None of these can be written as
JSON or as UTF-8 afterwards, and what cannot be written would fail long after it was taken.
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
    """Return what JSON says.

    Raises:
        json.JSONDecodeError: It is none, is nested more than 200 deep, or has a number or a text that is none.
    """
    try:
        from_json(data, allow_inf_nan=False)  # stricter than Python's parser, and as exact only in strings
        return json.loads(data, parse_float=_finite)
    except ValueError as error:
        raise json.JSONDecodeError(str(error), '', 0) from None


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f'the number {text[:20]} is too large')
    return number


class _JsonRequest(Request):
    """A request whose `json` is strict."""

    async def json(self) -> Any:
        """Return the body."""
        return parse_json(await self.body())


class JsonRoute(APIRoute):
    """A route with strict JSON: `APIRouter(route_class=JsonRoute)`. Its operation has the name of its function."""

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        options['operation_id'] = endpoint.__name__
        super().__init__(path, endpoint, **options)

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers, as FastAPI asks for it."""
        answer = super().get_route_handler()

        async def answer_strictly(request: Request) -> Response:
            return await answer(_JsonRequest(request.scope, request.receive))

        return answer_strictly
