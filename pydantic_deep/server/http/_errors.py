"""Error responses in the format of the called API: ours, OpenAI's, Anthropic's or Google's.

Raise `ServerError` anywhere below a route. Messages must not contain client input, or data that the client may not see.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Literal, NamedTuple, TypeAlias, cast

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, JsonValue
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.types import Scope

from pydantic_deep.approvals import ApprovalChangedError
from pydantic_deep.errors import DeepAgentError, ValidationError
from pydantic_deep.repository import (
    InvalidCursorError,
    InvalidQuestionError,
    RepositoryUnavailableError,
    RowNotFoundError,
)
from pydantic_deep.store import (
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    StoreClosedError,
    StoreUnavailableError,
    UnfinishedCheckoutError,
    VersionConflictError,
    VersionNotFoundError,
)
from pydantic_deep.versions import WorkspaceReplacedError
from pydantic_deep_backends import ScanLimitError

from ._security_headers import add_headers

ErrorType: TypeAlias = Literal[
    'unauthenticated',
    'forbidden',
    'not_found',
    'method_not_allowed',
    'conflict',
    'too_large',
    'invalid',
    'rate_limited',
    'unavailable',
    'failed',
]
"""The type of an error, as our own routes report it."""


class _Format(NamedTuple):
    """An error type in HTTP and in the formats of the other APIs."""

    status: int
    """The status on our own routes. On those of other APIs, `invalid` is 400, as clients expect."""
    openai_type: str
    openai_code: str
    """OpenAI's names (API reference, "Error codes")."""
    anthropic: str
    """Anthropic's name (API reference, "Errors")."""
    google: str
    """Google's name, from `google.rpc.Code` (AIP-193)."""


_FORMATS: Mapping[ErrorType, _Format] = {
    'unauthenticated': _Format(
        401, 'authentication_error', 'invalid_api_key', 'authentication_error', 'UNAUTHENTICATED'
    ),
    'forbidden': _Format(403, 'permission_error', 'insufficient_permissions', 'permission_error', 'PERMISSION_DENIED'),
    'not_found': _Format(404, 'invalid_request_error', 'model_not_found', 'not_found_error', 'NOT_FOUND'),
    'method_not_allowed': _Format(
        405, 'invalid_request_error', 'method_not_supported', 'invalid_request_error', 'UNIMPLEMENTED'
    ),
    'conflict': _Format(409, 'invalid_request_error', 'conflict', 'invalid_request_error', 'ABORTED'),
    'too_large': _Format(413, 'invalid_request_error', 'request_too_large', 'request_too_large', 'INVALID_ARGUMENT'),
    'invalid': _Format(422, 'invalid_request_error', 'invalid_value', 'invalid_request_error', 'INVALID_ARGUMENT'),
    'rate_limited': _Format(429, 'rate_limit_error', 'rate_limit_exceeded', 'rate_limit_error', 'RESOURCE_EXHAUSTED'),
    'unavailable': _Format(503, 'server_error', 'unavailable', 'overloaded_error', 'UNAVAILABLE'),
    'failed': _Format(500, 'server_error', 'internal_error', 'api_error', 'INTERNAL'),
}

NOT_FOUND = 'This resource does not exist, or this key has no access to it.'
"""The message for missing resources and those of another owner."""

UNKNOWN_ROUTE = 'This server has no such route. `/openapi.json` lists those that it has.'
"""The message for an unknown path."""

LINE_BREAK = 'No path of this server contains a line break. Remove it from the name.'
"""The message for a path such as that of an upload `a%0Ab.txt`, which matches no route."""

_NO_EMBEDDINGS = 'This server runs agents and computes no embeddings. Send this request to an embedding model.'
_NOT_OFFERED: Mapping[str, str] = {
    '/v1/completions': 'This server does not offer legacy completions. Use `POST /v1/chat/completions`.',
    '/v1/embeddings': _NO_EMBEDDINGS,
    ':embedContent': _NO_EMBEDDINGS,
    ':batchEmbedContents': _NO_EMBEDDINGS,
    '/v1/responses/compact': 'This server does not compact responses: an agent itself summarizes a history that is too long.',
    '/v1/files': 'This server does not offer files by id. Send a file in the message, as a `data:` URL or as base64, or '
    'upload it with `PUT /api/conversations/{conversation}/uploads/{name}`.',
}
"""Messages for routes that clients expect of such a server, by their beginning or their end."""

_NOT_JSON = 'Send JSON with the header `Content-Type: application/json`'

FAILED = 'Internal server error. The log of the server contains the details.'
"""The message for an unexpected exception."""

MESSAGES: Mapping[ErrorType, str] = {
    'unauthenticated': 'This requires a valid API key. Send it as `Authorization: Bearer KEY`.',
    'forbidden': 'This key lacks the required scope. Ask for a key that has it.',
    'not_found': NOT_FOUND,
    'method_not_allowed': 'This path does not support the method. The `Allow` header lists the supported ones.',
    'conflict': 'Another request has changed the resource first.',
    'too_large': 'The body is larger than this server accepts.',
    'invalid': 'The request is invalid.',
    'rate_limited': 'Too many requests with this key. Wait for the time given in `Retry-After`.',
    'unavailable': 'The server is not accepting requests now. Try again later.',
    'failed': FAILED,
}
"""Default messages, also used as examples in the OpenAPI document."""


NO_RETRY: Mapping[str, str] = {'x-should-retry': 'false'}
"""A header that disables the automatic retries of the OpenAI and Anthropic clients: a retry after a conflict or a
failure would repeat the work of the turn."""


class ServerError(DeepAgentError, HTTPException):
    """A refused request.

    Args:
        type: The type of the error, which determines the status.
        message: The cause and the remedy, without secrets. Defaults to a generic sentence.
        facts: Additional fields in our own format, beside `type` and `message`, such as the id of a conflicting run.
            With an `error_code`, they are the `details` in Anthropic's format. `code` replaces the code in OpenAI's.
        headers: Headers of the response.
    """

    def __init__(
        self,
        type: ErrorType,
        message: str | None = None,
        *,
        facts: Mapping[str, JsonValue] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self.type: ErrorType = type
        """The type of the error."""
        self.message = MESSAGES[type] if message is None else message
        """The cause and the remedy."""
        self.facts = dict(facts or {})
        """Additional fields in our own format."""
        defaults = {'WWW-Authenticate': 'Bearer'} if type == 'unauthenticated' else {}
        super().__init__(_FORMATS[type].status, self.message, headers={**defaults, **(headers or {})})


def not_found() -> ServerError:
    """Return the error for a missing resource or another owner's. The two cases cannot be distinguished."""
    return ServerError('not_found')


class ErrorDetail(BaseModel):
    """The reason why a request was refused."""

    model_config = ConfigDict(extra='allow')

    type: ErrorType
    """The type of the error, for programs."""
    message: str
    """The cause and the remedy, for people."""


class ErrorBody(BaseModel):
    """The body of all error responses of our own routes."""

    error: ErrorDetail
    """The reason why the request was refused."""


Api: TypeAlias = Literal['ours', 'openai', 'anthropic', 'google']
"""The API that a path belongs to."""


GOOGLE_METHODS = (':generateContent', ':streamGenerateContent', ':countTokens', ':embedContent', ':batchEmbedContents')
"""The methods of models in Google's API, below `/v1beta` or, in newer clients, below `/v1`."""


def path_of(scope: Scope) -> str:
    """Return the requested path as the routes of this application define it."""
    return cast('str', scope['path']).removeprefix(scope.get('root_path', ''))


def api_of(path: str) -> Api:
    """Return the API that a path belongs to."""
    if path == '/v1beta' or path.startswith('/v1beta/') or path.endswith(GOOGLE_METHODS):
        return 'google'
    if path == '/v1/messages' or path.startswith('/v1/messages/'):
        return 'anthropic'
    return 'openai' if path.startswith('/v1/') else 'ours'


def render_error(error: ServerError, api: Api) -> JSONResponse:
    """Return the response for an error."""
    status = 400 if error.type == 'invalid' and api != 'ours' else error.status_code
    is_final = api != 'ours' and error.type == 'conflict'  # a retry after the running turn would start another turn
    headers = {**(error.headers or {}), **(NO_RETRY if is_final else {})}
    return JSONResponse(_BODIES[api](error, status), status, headers=headers)


def describe_errors(*types: ErrorType, api: Api = 'ours') -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route: the errors of all routes with a key, and the given ones, with examples."""
    always: tuple[ErrorType, ...] = ('unauthenticated', 'forbidden', 'invalid', 'rate_limited', 'unavailable')
    described: dict[int | str, dict[str, Any]] = {}
    for type in dict.fromkeys((*always, *types)):
        error = ServerError(type)
        status = 400 if type == 'invalid' and api != 'ours' else error.status_code
        described[status] = {
            'description': HTTPStatus(status).phrase,
            'content': {'application/json': {'example': _BODIES[api](error, status)}},
            **({'model': ErrorBody} if api == 'ours' else {}),
        }
    return described


class UnknownRouteError(ServerError):
    """A request of an unknown path. It says nothing about a model or a resource."""

    def __init__(self, path: str) -> None:
        super().__init__('not_found', LINE_BREAK if '\n' in path else _not_offered(path) or UNKNOWN_ROUTE)


def _not_offered(path: str) -> str | None:
    """Return the message for a route that clients expect; `None` for other paths."""
    return next((text for end, text in _NOT_OFFERED.items() if path.endswith(end) or path.startswith(f'{end}/')), None)


def install_error_handlers(app: Starlette) -> None:
    """Install handlers that answer every error in the format of the called API."""
    for error in _REFUSALS:
        app.add_exception_handler(error, _on_refusal)
    app.add_exception_handler(Exception, _on_defect)


def refusal_of(error: Exception) -> ServerError | None:
    """Return the refusal for an exception of a route; `None` for a defect."""
    refuse = next((_REFUSALS[kind] for kind in type(error).__mro__ if kind in _REFUSALS), None)
    return None if refuse is None else refuse(error)


_BY_STATUS: Mapping[int, ErrorType] = {400: 'invalid', **{row.status: type for type, row in _FORMATS.items()}}


async def _on_refusal(request: Request, error: Exception) -> JSONResponse:
    path = path_of(request.scope)
    is_ours = isinstance(error, ServerError)  # else the router has found no route, or no method
    if isinstance(error, HTTPException) and not is_ours and (error.status_code == 404 or _is_unknown(path)):
        return _error_response(request, UnknownRouteError(path))
    return _error_response(request, refusal_of(error) or ServerError('failed'))


def _is_unknown(path: str) -> bool:
    """Return whether a path is unknown although another method of it, or of a model with its name, exists."""
    return _not_offered(path) is not None or (':' in path.rpartition('/')[2] and not path.endswith(GOOGLE_METHODS))


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    response = _error_response(request, ServerError('failed'))  # Starlette re-raises the error afterwards, for the log
    add_headers(response.headers)  # this handler runs outside of all middleware
    return response


def refuse_http(error: HTTPException) -> ServerError:
    """Return the refusal for an exception of Starlette or of a host application, without its text."""
    if isinstance(error, ServerError):
        return error
    return ServerError(_BY_STATUS.get(error.status_code, 'invalid'), headers=error.headers)


def _refuse_body(error: RequestValidationError) -> ServerError:
    found = [(_path_in(error.body, problem), _describe(problem)) for problem in error.errors()]
    if isinstance(error.body, bytes):  # FastAPI parses only bodies that say that they are JSON
        found = [(path, _NOT_JSON if path == ('body',) else text) for path, text in found]
    paths = [path for path, _ in found]
    # A value that has none of several types has a problem for each of them: those inside of the value describe it best.
    best = [(path, text) for path, text in found if not any(path == other[: len(path)] != other for other in paths)]
    problems = [('.'.join(map(str, path)), text) for path, text in dict.fromkeys(best)]
    summary = '; '.join(f'{path}: {text}' for path, text in problems[:3])
    facts: dict[str, JsonValue] = {
        'field': problems[0][0].rpartition('.')[2],
        'problems': [{'path': path, 'message': text} for path, text in problems],
    }
    return ServerError('invalid', f'The request is invalid: {summary}.', facts=facts)


def _path_in(body: object, problem: Mapping[str, Any]) -> tuple[int | str, ...]:
    """Return the path of a problem as the client knows it, without the names of types in a union."""
    where, *rest = problem['loc']
    path: list[int | str] = [where]
    if where != 'body':
        return (where, *rest)
    for number, key in enumerate(rest, start=1):
        try:
            body = cast('Any', body)[key]
        except (LookupError, TypeError):
            if number == len(rest) and problem['type'] == 'missing':
                path.append(key)
        else:
            path.append(key)
    return tuple(path)


def _describe(problem: Mapping[str, Any]) -> str:
    """Return the message of a problem, without `input`, which may be a secret."""
    if problem['type'] != 'union_tag_invalid':
        return problem['msg']
    context = problem['ctx']
    return f'{context["tag"][:80]!r} is not supported. Use one of {context["expected_tags"]}'


def _missing(error: Exception) -> ServerError:
    return not_found()


def _unavailable(error: Exception) -> ServerError:
    return ServerError('unavailable', headers={'Retry-After': '5'})


def _invalid(error: Exception) -> ServerError:
    return ServerError('invalid', str(error))


def _conflict(error: Exception) -> ServerError:
    return ServerError('conflict', str(error))


_REFUSALS: Mapping[type[Exception], Callable[[Any], ServerError]] = {
    HTTPException: refuse_http,  # also Starlette's own: unknown route, wrong method, malformed body
    RequestValidationError: _refuse_body,
    **dict.fromkeys((VersionNotFoundError, ApprovalNotFoundError, RowNotFoundError), _missing),
    **dict.fromkeys((StoreUnavailableError, StoreClosedError, RepositoryUnavailableError), _unavailable),
    **dict.fromkeys((InvalidCursorError, InvalidQuestionError), _invalid),
    ValidationError: lambda error: ServerError('invalid', str(error), facts={'field': error.field}),
    ApprovalChangedError: lambda error: ServerError('conflict', str(error), facts={'digest': error.digest}),
    ApprovalAnsweredError: lambda error: ServerError(
        'conflict', str(error), facts={'status': error.status, 'decided_by': error.by}
    ),
    **dict.fromkeys((ScanLimitError, VersionConflictError), _conflict),
    UnfinishedCheckoutError: lambda error: ServerError(
        'conflict',
        'A checkout into the directory of this agent was interrupted. The operator of the server must repeat it.',
    ),
    WorkspaceReplacedError: lambda error: ServerError(
        'conflict',
        'The directory of this conversation was replaced, and contains other files. The operator of the server must '
        'empty it, or check out a version there.',
    ),
}
"""The refusal for each exception that routes may raise."""


def _error_response(request: Request, error: ServerError) -> JSONResponse:
    return render_error(error, api_of(path_of(request.scope)))


def _ours(error: ServerError, status: int) -> dict[str, JsonValue]:
    return {'error': {'type': error.type, 'message': error.message, **error.facts}}


def _openai(error: ServerError, status: int) -> dict[str, JsonValue]:
    row = _FORMATS[error.type]
    code = 'unknown_url' if isinstance(error, UnknownRouteError) else error.facts.get('code', row.openai_code)
    return {'error': {'message': error.message, 'type': row.openai_type, 'param': None, 'code': code}}


def _anthropic(error: ServerError, status: int) -> dict[str, JsonValue]:
    details: dict[str, JsonValue] = {'details': error.facts} if 'error_code' in error.facts else {}
    return {'type': 'error', 'error': {'type': _FORMATS[error.type].anthropic, 'message': error.message, **details}}


def _google(error: ServerError, status: int) -> dict[str, JsonValue]:
    return {'error': {'code': status, 'message': error.message, 'status': _FORMATS[error.type].google}}


_BODIES = {'ours': _ours, 'openai': _openai, 'anthropic': _anthropic, 'google': _google}
