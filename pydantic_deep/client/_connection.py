"""Requests and the validation of responses, for all groups of methods."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Generic, TypeVar
from urllib.parse import quote

import httpx2
from pydantic import BaseModel, ConfigDict, ValidationError

from pydantic_deep import errors
from pydantic_deep._checks import check_unicode

from ._errors import ApiError

ModelT = TypeVar('ModelT', bound=BaseModel)

QueryValue = str | int | bool | None
"""The value of a query parameter. `None` omits it."""


class _Page(BaseModel, Generic[ModelT]):
    """A page of a list, or a list in one piece."""

    items: list[ModelT]
    cursor: str | None = None


class _ErrorDetail(BaseModel):
    model_config = ConfigDict(extra='allow')

    type: str
    message: str


class _ErrorBody(BaseModel):
    error: _ErrorDetail


class Connection:
    """Sends requests to one server, and validates the responses."""

    def __init__(self, http: httpx2.AsyncClient) -> None:
        self.http = http
        """The HTTP client, which the owner of the connection closes."""

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, QueryValue] | None = None,
        json: object = None,
        content: bytes | None = None,
    ) -> bytes:
        """Send a request, and return the body of the response.

        Raises:
            ApiError: The server refused the request or did not answer.
            ValidationError: JSON cannot represent the request.
        """
        try:
            request = self.http.build_request(method, path, params=_present(params), json=json, content=content)
        except (TypeError, ValueError) as error:
            raise errors.ValidationError('json', f'JSON cannot represent the request: {error}.') from error
        try:
            response = await self.http.send(request)
        except httpx2.RequestError as error:
            raise unanswered(f'{method} {path}', error) from error
        check_status(response)
        return response.content

    async def get(self, model: type[ModelT], path: str, **params: QueryValue) -> ModelT:
        """Return a resource."""
        return parse(model, await self.send('GET', path, params=params))

    async def post(
        self, model: type[ModelT], path: str, json: object = None, *, params: Mapping[str, QueryValue] | None = None
    ) -> ModelT:
        """Send a body, by default none, and return the answer."""
        return parse(model, await self.send('POST', path, json=json, params=params))

    async def items(self, model: type[ModelT], path: str, **params: QueryValue) -> AsyncGenerator[ModelT]:
        """Yield the items of all pages. The next page is requested when the previous one is used up."""
        cursor: str | None = None
        while True:
            page = parse(_Page[model], await self.send('GET', path, params={**params, 'cursor': cursor}))
            for item in page.items:
                yield item
            cursor = page.cursor
            if cursor is None:
                return

    @asynccontextmanager
    async def stream(
        self, path: str, params: Mapping[str, QueryValue], headers: Mapping[str, str]
    ) -> AsyncGenerator[httpx2.Response]:
        """Open a response whose body is read incrementally.

        Raises:
            ApiError: The server refused the request.
            httpx2.RequestError: The server did not answer, or the connection was lost.
        """
        async with self.http.stream('GET', path, params=_present(params), headers=headers) as response:
            if not response.is_success:
                await response.aread()
            check_status(response)
            yield response


def segment(name: str, value: str) -> str:
    """Return an id or name as a segment of a path.

    Raises:
        ValidationError: The value is empty, or changes the path.
    """
    if value in ('', '.', '..'):
        raise errors.ValidationError(name, f'{value!r} is no name or id. Pass one that the server returned.')
    check_unicode(name, value)
    return quote(value, safe='')


def segments(name: str, value: str) -> str:
    """Return a path below a collection, with or without a slash at its start."""
    return '/'.join(segment(name, part) for part in value.removeprefix('/').split('/'))


def parse(model: type[ModelT], body: bytes) -> ModelT:
    """Validate the body of a response.

    Raises:
        ApiError: The body has another shape.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise ApiError(
            f'The server answered with something other than a {model.__name__}: {first["msg"]}. Check that the URL is '
            'that of a pydantic-deep server, and that the server and the client have the same version.'
        ) from error


def unanswered(request: str, error: httpx2.RequestError) -> ApiError:
    """Return the error for a request without an answer."""
    reason = str(error) or type(error).__name__
    return ApiError(f'{request} got no answer: {reason}. Check the URL and the server before you repeat the request.')


def check_status(response: httpx2.Response) -> None:
    """Check that the request succeeded.

    Raises:
        ApiError: It did not.
    """
    if response.is_success:
        return
    wait = response.headers.get('retry-after', '')
    retry_after = int(wait) if wait.isascii() and wait.isdigit() else None
    try:
        detail = _ErrorBody.model_validate_json(response.content).error
    except ValidationError:
        request = f'{response.request.method} {response.request.url.path}'
        raise ApiError(
            f'{request} failed, and the answer is not one of a pydantic-deep server. Check the URL and the proxies.',
            status=response.status_code,
            retry_after_seconds=retry_after,
        ) from None
    raise ApiError(
        detail.message,
        status=response.status_code,
        type=detail.type,
        facts=detail.model_extra,
        retry_after_seconds=retry_after,
    )


def present(values: Mapping[str, object]) -> dict[str, object]:
    """Return the fields of a body that have a value."""
    return {name: value for name, value in values.items() if value is not None}


def _present(params: Mapping[str, QueryValue] | None) -> dict[str, str | int | bool]:
    return {name: value for name, value in (params or {}).items() if value is not None}
