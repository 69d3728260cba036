"""`create_app`: the application, its layers and its routes."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware

from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import SqlStore

from ._agents import AnyAgent, check_agents
from ._auth import Authentication, KeyInQuery
from ._errors import api_of, install_error_forms
from ._headers import SecurityHeaders
from ._lifespan import serving
from ._limits import BodyLimit, RefuseAmbiguousLength
from ._metrics import CountRequests, ServerMetrics
from ._routes import ROUTERS
from ._settings import ServerSettings, load_settings
from ._state import MakeBackend

TAGS = [
    {'name': 'agents', 'description': 'What can be talked to.'},
    {'name': 'conversations', 'description': 'Dialogues, their turns and their files. All are of one owner.'},
    {'name': 'runs', 'description': 'What works now, and what it tells: clients come and go, and a run goes on.'},
    {'name': 'versions', 'description': 'The history of everything: look, compare, go back, branch, merge.'},
    {'name': 'approvals', 'description': 'Calls that wait for a person.'},
    {'name': 'audit', 'description': 'What became of runs.'},
    {'name': 'server', 'description': 'The server itself.'},
    {'name': 'openai', 'description': 'For clients of OpenAI: the name of an agent is the name of the model.'},
    {'name': 'anthropic', 'description': 'For clients of Anthropic.'},
    {'name': 'google', 'description': 'For clients of Google.'},
    {'name': 'ui', 'description': 'For AG-UI and for Vercel AI.'},
]
"""What the OpenAPI document sorts its operations by."""

_UPLOAD = re.compile(r'/api/conversations/[^/]+/uploads/.+')


def create_app(
    agents: Mapping[str, AnyAgent],
    store: SqlStore,
    settings: ServerSettings | None = None,
    *,
    make_deps: Callable[[], DeepAgentDeps] | None = None,
    make_backend: MakeBackend | None = None,
) -> FastAPI:
    """Return an application that serves agents over HTTP. Whoever serves it keeps the store open meanwhile.

    ```text
    async with open_store('sqlite:///agents.db') as store:
        print(await create_api_key(store, name='laptop', scopes=['run', 'approve']))
        app = create_app({'analyst': agent}, store)
        await uvicorn.Server(uvicorn.Config(app)).serve()
    ```

    Args:
        agents: What is served, by the names that clients use. The agents stay as they are; every run of theirs here
            has the name, and writes an audit record.
        store: Where conversations, keys and audit records live.
        settings: What the operator has set; by default what the environment says.
        make_deps: Makes the deps of each run; an agent that comes as a `VersionedAgent` has its own.
        make_backend: Returns the files of a conversation, by its owner and its id. By default, each begins with an
            empty `StateBackend`, and versions hold its files. Two owners must never get the same.

    Raises:
        InvalidAgentsError: They cannot be served like that.
        InvalidSettingsError: The environment says what cannot be.
    """
    check_agents(agents, store)
    settings = settings or load_settings()
    metrics = ServerMetrics()
    app = FastAPI(
        title='pydantic-deep',
        summary='Deep agents whose every step is kept.',
        version=importlib.metadata.version('pydantic-deep'),
        openapi_tags=TAGS,
        docs_url=None,  # their scripts come from elsewhere
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
    install_error_forms(app)
    for router in ROUTERS:
        # They are used as they are, and not included: FastAPI builds what it includes once more for each application.
        app.router.routes.extend(router.routes)
    _add_layers(app, settings, metrics)
    write_document = app.openapi
    app.openapi = lambda: _corrected(write_document())
    return app


def _add_layers(app: FastAPI, settings: ServerSettings, metrics: ServerMetrics) -> None:
    """Put layers around the routes: the last one is the outermost."""
    app.add_middleware(Authentication)
    app.add_middleware(BodyLimit, limit_for=partial(_limit_for, settings))
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors_origins,
            allow_methods=['GET', 'POST', 'PUT', 'PATCH', 'DELETE'],
            allow_headers=['*'],  # clients send headers of their own; there are no cookies that could be abused
        )
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=settings.allowed_hosts, www_redirect=False)
    app.add_middleware(RefuseAmbiguousLength)
    app.add_middleware(CountRequests, metrics=metrics)
    app.add_middleware(SecurityHeaders)
    app.add_middleware(KeyInQuery)


def _corrected(document: dict[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI document with what FastAPI cannot know of the APIs of others; it keeps and returns one object."""
    document['components']['securitySchemes']['key'] = {
        'type': 'apiKey', 'in': 'query', 'name': 'key', 'description': 'An API key: Google clients.',
    }  # fmt: skip
    for path, operations in document['paths'].items():
        for operation in operations.values():
            if api_of(path) != 'ours':
                operation['responses'].pop('422', None)  # added by FastAPI; it is 400 there
            if api_of(path) == 'google' and {'key': []} not in operation['security']:
                operation['security'].append({'key': []})
    return document


def _limit_for(settings: ServerSettings, method: str, path: str) -> int:
    """Return how many bytes the body of a request may have."""
    is_upload = method == 'PUT' and _UPLOAD.fullmatch(path) is not None
    return settings.max_upload_bytes if is_upload else settings.max_body_bytes
