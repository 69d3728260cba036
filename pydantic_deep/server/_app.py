"""`create_app`: the application with its middleware and routes."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping
from functools import partial

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from pydantic_deep._checks import check_functions, check_object
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import SqlStore

from ._agents import AnyAgent, check_agents
from ._lifespan import serving
from ._metrics import RequestCounter, ServerMetrics
from ._openapi import TAGS, complete_document
from ._settings import InvalidSettingsError, ServerSettings, load_settings
from ._state import MakeBackend
from .access._authentication import Authentication, HostCheck, KeyInQuery
from .access._identity import Authenticate, Login, create_login
from .http._body_limit import AmbiguousLengthCheck, BodyLimit
from .http._errors import install_error_handlers
from .http._mounting import MountedLocations
from .http._security_headers import SecurityHeaders

_UPLOAD = re.compile(r'/api/conversations/[^/]+/uploads/.+')


def create_app(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings | None = None,
    *,
    make_deps: Callable[[], DeepAgentDeps] | None = None,
    make_backend: MakeBackend | None = None,
    authenticate: Authenticate | None = None,
    login_url: str | None = None,
    logout_url: str | None = None,
) -> FastAPI:
    """Return an application that serves agents over HTTP. The caller must keep the store open while it runs.

    ```text
    async with open_store('sqlite:///agents.db') as store:
        print(await create_api_key(store, name='laptop', scopes=['run', 'approve']))
        app = create_app({'analyst': agent}, store)
        await uvicorn.Server(uvicorn.Config(app)).serve()
    ```

    Args:
        agents: The agents to serve, by the names that clients use. They are not changed; every run on this server
            has the client-facing name, and writes an audit record.
        store: The store of conversations, keys and audit records.
        settings: The settings of the operator. By default, they are read from the environment.
        make_deps: Creates the deps of each run. A `VersionedAgent` uses its own instead.
        make_backend: Returns the files of a conversation, by its owner and its id. By default, each has a directory in
            the setting `work_dir`, or without it starts with an empty `StateBackend`; versions contain its files. It must
            never return the same for two owners.
        authenticate: Returns who sends a request, for a server in an application with its own login. It is called for
            each request before its body is read, with the cookies and headers, and again while a stream lasts. `None`
            requires an API key. A function that is not `async` must not block.
        login_url: Where people log in, as a path or with `https:`. The page links there if `authenticate` returns `None`;
            by default, it asks for an API key.
        logout_url: Where people log out, as a path or with `https:`. The settings of the page link there for people whom
            `authenticate` knows; by default, these cannot sign out on the page.

    Raises:
        ValidationError: `login_url` or `logout_url` is not a path or address, or is given without `authenticate`; or
            another argument has the wrong type.
        InvalidAgentsError: An agent cannot be served.
        InvalidSettingsError: The environment contains invalid settings, or `examples` names another agent.
    """
    from .routes._routers import ROUTERS  # half of the import time of the package, which only an application needs

    check_agents(agents, store)
    check_functions(make_deps=make_deps, make_backend=make_backend, authenticate=authenticate)
    if settings is not None:
        check_object('settings', settings, ServerSettings, 'For example, `ServerSettings(port=8000)`.')
    login = create_login(authenticate, login_url, logout_url)
    settings = settings or load_settings()
    if unknown := settings.examples.keys() - agents.keys():
        raise InvalidSettingsError(
            f'`examples` names agents that are not served: {", ".join(sorted(unknown))}. Served: {", ".join(sorted(agents))}.'
        )
    metrics = ServerMetrics()
    app = FastAPI(
        title='pydantic-deep',
        summary='Deep agents with version control.',
        version=importlib.metadata.version('versioned-deep-agents'),
        openapi_tags=TAGS,
        docs_url=None,  # the scripts of these pages come from other hosts
        redoc_url=None,
        redirect_slashes=False,
        lifespan=partial(
            serving,
            agents=agents,
            store=store,
            settings=settings,
            metrics=metrics,
            make_deps=make_deps,
            make_backend=make_backend,
        ),
    )
    install_error_handlers(app)
    for router in ROUTERS:
        # Routes are shared, not included: FastAPI rebuilds included routes for each application.
        app.router.routes.extend(router.routes)
    _add_middleware(app, settings, metrics, login)
    write_document = app.openapi
    app.openapi = lambda: complete_document(write_document())
    return app


def _add_middleware(app: FastAPI, settings: ServerSettings, metrics: ServerMetrics, login: Login | None) -> None:
    """Wrap the routes with middleware. The last one added is the outermost."""
    app.add_middleware(Authentication, login=login)
    app.add_middleware(BodyLimit, limit_for=partial(_limit_for, settings))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
            allow_headers=[
                '*'
            ],  # clients send custom headers; other origins cannot read with cookies: credentials are not allowed
            expose_headers=['*'],  # such as `x-run-id`, by which a page cancels a run
        )
    app.add_middleware(MountedLocations)
    app.add_middleware(HostCheck, allowed_hosts=settings.allowed_hosts)
    app.add_middleware(AmbiguousLengthCheck)
    app.add_middleware(RequestCounter, metrics=metrics)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(KeyInQuery)


def _limit_for(settings: ServerSettings, method: str, path: str) -> int:
    """Return the maximum body size of a request in bytes."""
    is_upload = method == 'PUT' and _UPLOAD.fullmatch(path) is not None
    return settings.max_upload_bytes if is_upload else settings.max_body_bytes
