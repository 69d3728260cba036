"""Agents over HTTP: `create_app(agents, store)`. It needs the extra `server`."""

try:
    import fastapi as _fastapi  # noqa: F401
    import prometheus_client as _prometheus_client  # noqa: F401
    import pydantic_settings as _pydantic_settings  # noqa: F401
    import sse_starlette as _sse_starlette  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"The server needs {error.name!r}, which is not installed. Install the extra: `pip install 'pydantic-deep[server]'`.",
        name=error.name,
    ) from error

from ._agents import InvalidAgentsError
from ._app import create_app
from ._keys import ApiKey, InvalidKeyError, KeyScope, create_api_key, list_api_keys, revoke_api_key
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
