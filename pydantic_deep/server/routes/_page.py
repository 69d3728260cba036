"""The web page and its static files. They contain no user data: the page needs a key to load any."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from mimetypes import guess_type
from typing import Final

from fastapi import APIRouter
from starlette.responses import Response

from pydantic_deep._text.escapes import SHAPING, unseen_ranges
from pydantic_deep.server.http._errors import not_found

router = APIRouter(include_in_schema=False)

_PAGE: Final = 'index.html'


@router.get('/')
async def read_page() -> Response:
    """Return the web page."""
    return _file(_PAGE)


@router.get('/static/{name}')
async def read_static(name: str) -> Response:
    """Return a static file of the page."""
    return _file(name)


def _file(name: str) -> Response:
    content = _contents().get(name)
    if content is None:
        raise not_found()
    return Response(content, media_type=guess_type(name)[0])


@cache
def _contents() -> dict[str, bytes]:
    """Return all static files by name. Only listed files are served, so that no name can refer to another path."""
    contents = {file.name: file.read_bytes() for file in files('pydantic_deep.server').joinpath('static').iterdir()}
    return {**contents, 'unseen.js': _unseen_script().encode()}


def _unseen_script() -> str:
    """Return a script with the characters that the page must escape, generated from the ranges of `escape`."""
    ranges = ''.join(rf'\u{{{first:x}}}-\u{{{last:x}}}' for first, last in unseen_ranges())
    some = r'\u{0}-\u{8}\u{b}' + ranges.removeprefix(r'\u{0}')
    classes = {'IN_LINE': f'([{ranges}])', 'IN_LINES': f'([{some}])', 'IN_PROSE': f'(?!{SHAPING})([{some}])'}
    return ''.join(f'export const {name} = /{pattern}/u;\n' for name, pattern in classes.items())
