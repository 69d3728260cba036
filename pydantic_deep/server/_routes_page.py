"""The page, and the few files that it is made of. They hold nothing of anybody: what they show needs a key."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from mimetypes import guess_type
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from ._errors import not_found

router = APIRouter(include_in_schema=False)

_PAGE: Final = 'index.html'


@router.get('/')
async def read_page() -> Response:
    """Return the page."""
    return _file(_PAGE)


@router.get('/static/{name}')
async def read_static(name: str) -> Response:
    """Return a file of the page."""
    return _file(name)


def _file(name: str) -> Response:
    content = _contents().get(name)
    if content is None:
        raise not_found()
    return Response(content, media_type=guess_type(name)[0])


@cache
def _contents() -> dict[str, bytes]:
    """Return all files by name. Only what is listed is ever read, so no name leads elsewhere."""
    return {each.name: each.read_bytes() for each in files('pydantic_deep.server').joinpath('static').iterdir()}
