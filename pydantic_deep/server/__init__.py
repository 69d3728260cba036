"""Agents over HTTP: `create_app(agents, store)`. It needs the extra `server`.

A turn proceeds in this order:

1. A middleware asks the login of a host application, or checks the key by the digest of its secret, before anything is
   read, and applies the rate limit.
   Another one limits the body. The route requires a scope.
2. `access` loads the resource and compares owners: another owner's resources answer 404. The owner is in the metadata
   of a conversation's root version, which its versions inherit.
3. `start_run` checks the request (pending approvals, running runs, limits) and passes the turn to the run pool.
4. The pool runs `advance_stream` in a task of its own, so no client can block or end a run by disconnecting. Each event
   is appended to the log of the run.
5. Readers have their own positions in the log; the writer never waits for readers. A log is in memory up to a size,
   then in an unnamed temporary file. Logs of ended runs are dropped after a time, oldest first.
6. A client that reconnects names the last event it read. If that event is from another log, the client gets `reset`
   and all events again, from the new log or rebuilt from the messages in the store. No delta is stored.
7. Clients of other APIs send text only. The digest of the dialogue selects the version to continue, and an encoder
   creates their frames from the same log. URLs that a client sends are fetched only from
   domains that the operator allows, and its history, calls and results are never used. An error in a stream is sent as an error, never as a normal end.
8. The capability `Audit` writes a record at the start and at the end of a run.
9. Webhooks are found in the store and sent by one process at a time (`webhooks`).
10. On startup, `recover()` resumes runs of crashed processes, and audit records without a live run are ended.
"""

import importlib

try:
    for _name in ('fastapi', 'prometheus_client', 'pydantic_settings', 'uvicorn'):
        importlib.import_module(_name)
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"The server needs {_error.name!r}, which is not installed. Install the extra: `pip install 'versioned-deep-agents[server]'`.",
        name=_error.name,
    ) from _error

from pydantic_deep._agent_imports import AnyAgent, InvalidAgentsError, import_agents

from ._api_keys import (
    ApiKey,
    InvalidKeyError,
    KeyRing,
    KeyScope,
    create_api_key,
    list_api_keys,
    open_keys,
    revoke_api_key,
)
from ._app import create_app
from ._settings import InvalidSettingsError, ServerSettings, load_settings
from ._uvicorn import ServerStartError, serve
from ._worker import run_worker
from .access._identity import Authenticate, Identity, InvalidIdentityError
from .webhooks._webhooks import InvalidWebhookError, Webhook, WebhookDelivery, Webhooks, open_webhooks

__all__ = (
    'AnyAgent',
    'ApiKey',
    'Authenticate',
    'Identity',
    'InvalidAgentsError',
    'InvalidIdentityError',
    'InvalidKeyError',
    'InvalidSettingsError',
    'InvalidWebhookError',
    'KeyRing',
    'KeyScope',
    'ServerSettings',
    'ServerStartError',
    'Webhook',
    'WebhookDelivery',
    'Webhooks',
    'create_api_key',
    'create_app',
    'import_agents',
    'list_api_keys',
    'load_settings',
    'open_keys',
    'open_webhooks',
    'revoke_api_key',
    'run_worker',
    'serve',
)
