"""Sessions over HTTP, for clients of protocol versions before 2026-07-28 that can show forms.

Such a client receives a form as a request within the stream of a call, and sends the answer in a request of its own,
which must reach the same connection: that is the session. No other client gets one. A session has nothing but this
connection, so a request with the id of a session that has ended, or that another process has, is answered without it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final, cast

import anyio
from anyio.abc import TaskStatus
from mcp.server.lowlevel import Server
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request

from pydantic_deep.server._state import McpSession
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.store import new_id

_LOGGER = logging.getLogger('pydantic_deep')

SESSION_ID: Final = 'mcp-session-id'
"""The header with the id of a session."""

IDLE_SECONDS: Final = 1800
"""The time without a request after which a session ends."""

MAX_SESSIONS: Final = 100
"""Maximum number of sessions of a caller. A new one ends the one that was idle for the longest time."""


def find_session(access: Access, request: Request) -> McpSession | None:
    """Return the open session that a request names, if the same caller with the same permissions has opened it."""
    sessions = access.state.mcp_sessions
    session = sessions.get(request.headers.get(SESSION_ID, ''))
    if session is None or session.caller != access.caller:
        return None
    sessions[session.id] = sessions.pop(session.id)  # the order is that of the last use
    return session


def is_for_session(request: Request, message: Mapping[str, Any]) -> bool:
    """Return whether a message is the answer to a form, which only the session that has asked can use."""
    return SESSION_ID in request.headers and not {'result', 'error'}.isdisjoint(message)


def needs_session(request: Request, message: Mapping[str, Any]) -> bool:
    """Return whether a message is the first one of a client that needs a session to show forms."""
    if SESSION_ID in request.headers or message.get('method') != 'initialize':
        return False
    params = _object(message.get('params'))
    declared = _object(params.get('capabilities')).get('elicitation')
    return isinstance(declared, dict) and params.get('protocolVersion') in HANDSHAKE_PROTOCOL_VERSIONS


def parse_message(body: bytes) -> Mapping[str, Any]:
    """Return the message in a body, or an empty one for a body that the transport refuses."""
    try:
        return _object(json.loads(body))
    except (ValueError, RecursionError):
        return {}


def _object(value: object) -> dict[str, Any]:
    return cast('dict[str, Any]', value) if isinstance(value, dict) else {}


async def open_session(access: Access, server: Server[Any]) -> McpSession:
    """Start a session, which the server ends when it stops, and which ends by itself after `IDLE_SECONDS`."""
    sessions = access.state.mcp_sessions
    own = [session for session in sessions.values() if session.caller == access.caller]
    if len(own) >= MAX_SESSIONS:
        own[0].end()
    return cast('McpSession', await access.state.runs.tasks.start(_serve, access, server))


async def _serve(access: Access, server: Server[Any], *, task_status: TaskStatus[McpSession]) -> None:
    transport = StreamableHTTPServerTransport(mcp_session_id=new_id(), idle_timeout=IDLE_SECONDS)
    async with transport.connect() as (read, write):
        scope = cast('anyio.CancelScope', transport.idle_scope)  # it has an idle timeout
        session = McpSession(
            id=cast('str', transport.mcp_session_id),
            caller=access.caller,
            handle=transport.handle_request,
            end=scope.cancel,
        )
        sessions = access.state.mcp_sessions
        sessions[session.id] = session
        try:
            with scope:
                task_status.started(session)
                await server.run(read, write, server.create_initialization_options())
        except Exception:  # outermost boundary: a failed session must not end the server
            _LOGGER.exception('A session of MCP failed')
        finally:
            sessions.pop(session.id, None)
            with anyio.CancelScope(shield=True):
                await transport.terminate()
