"""The page, and the few files that it is made of. They hold nothing of anybody: what they show needs a key."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from mimetypes import guess_type
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from pydantic_deep._text.escapes import unseen_ranges
from pydantic_deep.server.http._errors import not_found

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
    contents = {each.name: each.read_bytes() for each in files('pydantic_deep.server').joinpath('static').iterdir()}
    return {**contents, 'unseen.js': _unseen_script().encode()}


def _unseen_script() -> str:
    """Return which characters the page writes out: those of `escape`, so that it has no list of its own."""
    ranges = ''.join(rf'\u{{{first:x}}}-\u{{{last:x}}}' for first, last in unseen_ranges())
    some = r'\u{0}-\u{8}\u{b}' + ranges.removeprefix(r'\u{0}')
    return f'export const IN_LINE = /([{ranges}])/u;\nexport const IN_LINES = /([{some}])/u;\n'
