"""Parameters that several routes share: the access of a caller with the scope `run`, and pagination."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Query

from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.access._scopes import Require

Runner = Annotated[Access, Depends(Require('run'))]
"""The access of a caller with the scope `run`."""

Limit = Annotated[int, Query(ge=1, le=200, description='Maximum number of items in the page.')]
"""The maximum number of items of a page."""

Cursor = Annotated[str | None, Query(pattern='^[0-9]{1,18}$', description='The cursor of the previous page.')]
"""The cursor of the previous page."""
