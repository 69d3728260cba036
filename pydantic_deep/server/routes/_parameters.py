"""Parameters that several routes share: the access of a caller with the scope `run`, and pagination."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Depends, Query

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.access._scopes import Require

Runner = Annotated[Access, Depends(Require('run'))]
"""The access of a caller with the scope `run`."""

Limit = Annotated[int, Query(ge=1, le=200, description='Maximum number of items in the page.')]
"""The maximum number of items of a page."""

CURSOR: Final = '^[0-9]{1,18}$'
"""The pattern of a cursor: a number that fits in an integer of a database."""

Cursor = Annotated[str | None, Query(pattern=CURSOR, description='The cursor of the previous page.')]
"""The cursor of the previous page."""
