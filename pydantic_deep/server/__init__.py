"""Agents over HTTP: `create_app(agents, store)`. It needs the extra `server`."""

import importlib

try:
    for _name in ('fastapi', 'prometheus_client', 'pydantic_settings', 'uvicorn'):
        importlib.import_module(_name)
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"The server needs {error.name!r}, which is not installed. Install the extra: `pip install 'pydantic-deep[server]'`.",
        name=error.name,
    ) from error

from ._agents import InvalidAgentsError
from ._api_keys import ApiKey, InvalidKeyError, KeyScope, create_api_key, list_api_keys, revoke_api_key
from ._app import create_app
from ._settings import InvalidSettingsError, ServerSettings, load_settings

__all__ = (
    'ApiKey',
    'InvalidAgentsError',
    'InvalidKeyError',
    'InvalidSettingsError',
    'KeyScope',
    'ServerSettings',
    'create_api_key',
    'create_app',
    'list_api_keys',
    'load_settings',
    'revoke_api_key',
)
