"""`Require`: the dependency with which a route declares the scope of its callers, and receives their `Access`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from pydantic_deep.server._api_keys import KeyScope
from pydantic_deep.server._state import state_in
from pydantic_deep.server.http._errors import ServerError

from ._authentication import caller_in
from ._ownership import Access

_BEARER = HTTPBearer(auto_error=False, scheme_name='bearer', description='An API key: ours and OpenAI clients.')
_X_API_KEY = APIKeyHeader(
    name='x-api-key', auto_error=False, scheme_name='x-api-key', description='An API key: Anthropic clients.'
)
_X_GOOG_API_KEY = APIKeyHeader(
    name='x-goog-api-key', auto_error=False, scheme_name='x-goog-api-key', description='An API key: Google clients.'
)


@dataclass(frozen=True)
class Require:
    """A dependency that requires a scope: `Annotated[Access, Depends(Require('run'))]`."""

    scope: KeyScope | None
    """The required scope; `None` for any caller."""

    def __call__(
        self,
        request: Request,
        # `Authentication` has already read these headers. They are parameters for the OpenAPI document only.
        bearer: Annotated[object, Security(_BEARER)],
        x_api_key: Annotated[object, Security(_X_API_KEY)],
        x_goog_api_key: Annotated[object, Security(_X_GOOG_API_KEY)],
    ) -> Access:
        """Return the access of the caller.

        Raises:
            ServerError: The caller lacks the scope.
        """
        access = Access(state=state_in(request.scope), caller=caller_in(request.scope))
        if self.scope is not None and not access.has(self.scope):
            holder = 'a key' if access.caller.has_key else 'a user'
            raise ServerError('forbidden', f'This requires {holder} with the scope `{self.scope}`.')
        return access
