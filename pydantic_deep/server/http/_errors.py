"""What a refused request is told, in the form of the API that was called: ours, OpenAI's, Anthropic's or Google's.

Raise `ServerError` anywhere below a route. Nothing that a client sent, and nothing that it may not see, is in a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Literal, TypeAlias, cast

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
"""What went wrong, in the word that our own routes use."""

STATUS: Mapping[ErrorType, int] = {
    'unauthenticated': 401,
    'forbidden': 403,
    'not_found': 404,
    'method_not_allowed': 405,
    'conflict': 409,
    'too_large': 413,
    'invalid': 422,
    'rate_limited': 429,
    'unavailable': 503,
    'failed': 500,
}
"""The HTTP status of each, on our own routes; on those of others `invalid` is 400, as their clients expect."""

NOT_FOUND = 'There is nothing here that this key may see.'
"""What is said of what is not there, of what belongs to another owner, and of an agent that a key may not use."""

FAILED = 'The server could not do this. Its log says why.'
"""What is said of a defect."""

MESSAGES: Mapping[ErrorType, str] = {
    'unauthenticated': 'This needs an API key that is valid now. Send it as `Authorization: Bearer KEY`.',
    'forbidden': 'This key has not the scope that this needs. Ask for one that has.',
    'not_found': NOT_FOUND,
    'method_not_allowed': 'This path takes other methods: see the header `Allow`.',
    'conflict': 'Somebody else was first.',
    'too_large': 'The body is larger than this server takes.',
    'invalid': 'The request is not what this path takes.',
    'rate_limited': 'Too many requests with this key. Wait as long as `Retry-After` says.',
    'unavailable': 'The server takes no requests now. Try again later.',
    'failed': FAILED,
}
"""What is said where nothing better is known, and in the examples of the OpenAPI document."""


NO_RETRY: Mapping[str, str] = {'x-should-retry': 'false'}
"""A header that the clients of OpenAI and Anthropic obey: of their own accord they send a request again that ended in a
conflict or failed, and what its turn did would be done again."""


class ServerError(DeepAgentError, HTTPException):
    """A request is refused.

    Args:
        type: Why; the status follows from it.
        message: What happened and what to do, without secrets; a general sentence if left out.
        facts: What our own form adds beside `type` and `message`, such as the id of the run that is in the way.
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
        """Why."""
        self.message = MESSAGES[type] if message is None else message
        """What happened and what to do."""
        self.facts = dict(facts or {})
        """What is added."""
        given = {'WWW-Authenticate': 'Bearer'} if type == 'unauthenticated' else {}
        super().__init__(STATUS[type], self.message, headers={**given, **(headers or {})})


def not_found() -> ServerError:
    """Return what is raised for an object that is not there or not the caller's: the two cannot be told apart."""
    return ServerError('not_found')


class ErrorDetail(BaseModel):
    """What was refused and why."""

    model_config = ConfigDict(extra='allow')

    type: ErrorType
    """Why, as a word for programs."""
    message: str
    """What happened and what to do, for people."""


class ErrorBody(BaseModel):
    """The body of every refused request of our own routes."""

    error: ErrorDetail
    """What was refused and why."""


Api: TypeAlias = Literal['ours', 'openai', 'anthropic', 'google']
"""Whose form a path has."""


GOOGLE_METHODS = (':generateContent', ':streamGenerateContent')
"""What Google's clients ask a model for, below `/v1beta` or, newer ones, below `/v1`."""


def path_of(scope: Scope) -> str:
    """Return the path that was asked for, as the routes of this application name it."""
    return cast('str', scope['path']).removeprefix(scope.get('root_path', ''))


def api_of(path: str) -> Api:
    """Return whose API a path belongs to."""
    if path == '/v1beta' or path.startswith('/v1beta/') or path.endswith(GOOGLE_METHODS):
        return 'google'
    if path == '/v1/messages' or path.startswith('/v1/messages/'):
        return 'anthropic'
    return 'openai' if path.startswith('/v1/') else 'ours'


def render_error(error: ServerError, api: Api) -> JSONResponse:
    """Return the response that tells an error."""
    status = 400 if error.type == 'invalid' and api != 'ours' else error.status_code
    is_final = api != 'ours' and error.type == 'conflict'  # once what works has ended, it would begin anew
    headers = {**(error.headers or {}), **(NO_RETRY if is_final else {})}
    return JSONResponse(_BODIES[api](error, status), status, headers=headers)


def describe_errors(*types: ErrorType, api: Api = 'ours') -> dict[int | str, dict[str, Any]]:
    """Return the `responses=` of a route: those that every route with a key has, and these, each with an example."""
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


def install_error_handlers(app: Starlette) -> None:
    """Install handlers that answer every error in the format of the API that was called."""
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    for error in (VersionNotFoundError, ApprovalNotFoundError, RowNotFoundError):
        app.add_exception_handler(error, _on_missing)
    for error in (StoreUnavailableError, StoreClosedError, RepositoryUnavailableError):
        app.add_exception_handler(error, _on_unavailable)
    for error in (InvalidCursorError, InvalidQuestionError):
        app.add_exception_handler(error, _on_invalid_query)
    app.add_exception_handler(ValidationError, _on_invalid_argument)
    app.add_exception_handler(ApprovalAnsweredError, _on_answered)
    app.add_exception_handler(ApprovalChangedError, _on_changed)
    app.add_exception_handler(UnfinishedCheckoutError, _on_unfinished_checkout)
    app.add_exception_handler(WorkspaceReplacedError, _on_replaced_workspace)
    app.add_exception_handler(ScanLimitError, _on_scan_limit)
    app.add_exception_handler(Exception, _on_defect)


_BY_STATUS: Mapping[int, ErrorType] = {400: 'invalid', **{status: type for type, status in STATUS.items()}}


async def _on_http_error(request: Request, error: Exception) -> JSONResponse:
    refused = cast('HTTPException', error)
    if not isinstance(refused, ServerError):  # Starlette's own: no such route, another method, a body that is none
        refused = ServerError(_BY_STATUS.get(refused.status_code, 'invalid'), headers=refused.headers)
    return _error_response(request, refused)


async def _on_invalid(request: Request, error: Exception) -> JSONResponse:
    problems = [
        {'path': '.'.join(map(str, each['loc'])), 'message': each['msg']}  # never `input`: it may hold a secret
        for each in cast('RequestValidationError', error).errors()
    ]
    summary = '; '.join(f'{each["path"]}: {each["message"]}' for each in problems[:3])
    facts: dict[str, JsonValue] = {'field': problems[0]['path'].rpartition('.')[2], 'problems': [*problems]}
    return _error_response(
        request, ServerError('invalid', f'The request is not what this path takes: {summary}.', facts=facts)
    )


async def _on_invalid_query(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, ServerError('invalid', str(error)))


async def _on_invalid_argument(request: Request, error: Exception) -> JSONResponse:
    wrong = cast('ValidationError', error)
    return _error_response(request, ServerError('invalid', str(wrong), facts={'field': wrong.field}))


async def _on_missing(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, not_found())


async def _on_unavailable(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, ServerError('unavailable', headers={'Retry-After': '5'}))


async def _on_changed(request: Request, error: Exception) -> JSONResponse:
    digest = cast('ApprovalChangedError', error).digest
    return _error_response(request, ServerError('conflict', str(error), facts={'digest': digest}))


async def _on_answered(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, ServerError('conflict', str(error)))


async def _on_unfinished_checkout(request: Request, error: Exception) -> JSONResponse:
    message = 'A checkout into the directory of this agent was cut off. Whoever runs the server has to repeat it.'
    return _error_response(request, ServerError('conflict', message))


async def _on_replaced_workspace(request: Request, error: Exception) -> JSONResponse:
    message = (
        'The directory of this conversation is not the one that had its files, and has other files. Whoever runs the '
        'server has to empty it, or to check out a version there.'
    )
    return _error_response(request, ServerError('conflict', message))


async def _on_scan_limit(request: Request, error: Exception) -> JSONResponse:
    return _error_response(request, ServerError('conflict', str(error)))


async def _on_defect(request: Request, error: Exception) -> JSONResponse:
    response = _error_response(request, ServerError('failed'))  # Starlette raises the error again after it, for the log
    add_headers(response.headers)  # it answers outside of all layers
    return response


def _error_response(request: Request, error: ServerError) -> JSONResponse:
    return render_error(error, api_of(path_of(request.scope)))


def _ours(error: ServerError, status: int) -> dict[str, JsonValue]:
    return {'error': {'type': error.type, 'message': error.message, **error.facts}}


def _openai(error: ServerError, status: int) -> dict[str, JsonValue]:
    """OpenAI's form (API reference, "Error codes")."""
    type, code = _OPENAI[error.type]
    return {'error': {'message': error.message, 'type': type, 'param': None, 'code': code}}


def _anthropic(error: ServerError, status: int) -> dict[str, JsonValue]:
    """Anthropic's form (API reference, "Errors")."""
    return {'type': 'error', 'error': {'type': _ANTHROPIC[error.type], 'message': error.message}}


def _google(error: ServerError, status: int) -> dict[str, JsonValue]:
    """Google's form (AIP-193), with the names of `google.rpc.Code`."""
    return {'error': {'code': status, 'message': error.message, 'status': _GOOGLE[error.type]}}


_BODIES = {'ours': _ours, 'openai': _openai, 'anthropic': _anthropic, 'google': _google}

_OPENAI: Mapping[ErrorType, tuple[str, str]] = {
    'unauthenticated': ('authentication_error', 'invalid_api_key'),
    'forbidden': ('permission_error', 'insufficient_permissions'),
    'not_found': ('invalid_request_error', 'model_not_found'),
    'method_not_allowed': ('invalid_request_error', 'method_not_supported'),
    'conflict': ('invalid_request_error', 'conflict'),
    'too_large': ('invalid_request_error', 'request_too_large'),
    'invalid': ('invalid_request_error', 'invalid_value'),
    'rate_limited': ('rate_limit_error', 'rate_limit_exceeded'),
    'unavailable': ('server_error', 'unavailable'),
    'failed': ('server_error', 'internal_error'),
}

_ANTHROPIC: Mapping[ErrorType, str] = {
    'unauthenticated': 'authentication_error',
    'forbidden': 'permission_error',
    'not_found': 'not_found_error',
    'method_not_allowed': 'invalid_request_error',
    'conflict': 'invalid_request_error',
    'too_large': 'request_too_large',
    'invalid': 'invalid_request_error',
    'rate_limited': 'rate_limit_error',
    'unavailable': 'overloaded_error',
    'failed': 'api_error',
}

_GOOGLE: Mapping[ErrorType, str] = {
    'unauthenticated': 'UNAUTHENTICATED',
    'forbidden': 'PERMISSION_DENIED',
    'not_found': 'NOT_FOUND',
    'method_not_allowed': 'UNIMPLEMENTED',
    'conflict': 'ABORTED',
    'too_large': 'INVALID_ARGUMENT',
    'invalid': 'INVALID_ARGUMENT',
    'rate_limited': 'RESOURCE_EXHAUSTED',
    'unavailable': 'UNAVAILABLE',
    'failed': 'INTERNAL',
}
