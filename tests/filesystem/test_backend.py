"""The backend of a run: given, found by a function, or refused before the first request."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from pydantic_ai import Agent, RunContext
from pydantic_ai.exceptions import UserError

from pydantic_deep.filesystem import Filesystem
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import StateBackend

from .conftest import Tenant, script

pytestmark = pytest.mark.anyio


async def test_function_selects_the_backend_of_each_run() -> None:
    backend_by_user = {'ann': StateBackend(), 'bob': StateBackend()}

    def find(ctx: RunContext[object]) -> StateBackend:
        return backend_by_user[str(ctx.deps)]

    agent = Agent(deps_type=str, capabilities=[Filesystem(backend=find)])
    for user in backend_by_user:
        await agent.run('go', deps=user, model=script(f'{user}.txt'))
    assert await backend_by_user['ann'].exists('/ann.txt')
    assert not await backend_by_user['ann'].exists('/bob.txt')


async def test_run_without_files_is_refused_before_the_first_request() -> None:
    model = ScriptedModel('done')
    with pytest.raises(UserError) as caught:
        await Agent(model, capabilities=[Filesystem()]).run('go')
    assert str(caught.value) == snapshot(
        'The `Filesystem` capability has no files to work on. Pass `Filesystem(backend=…)`, deps with a `backend`, or `workspace=` to the run.'
    )
    assert model.requests == []


async def test_deps_with_an_invalid_backend_are_refused_before_the_first_request() -> None:
    model = ScriptedModel('done')
    with pytest.raises(UserError) as caught:
        await Agent(model, deps_type=Tenant, capabilities=[Filesystem()]).run('go', deps=Tenant('./work'))
    assert str(caught.value) == snapshot(
        'str is not a backend: it has neither the members of `BackendProtocol` nor files or commands. Pass a backend of `pydantic_deep_backends`, or a pydantic-ai workspace backend with files.'
    )
    assert model.requests == []


async def test_workspace_without_files_and_commands_is_refused_before_the_first_request() -> None:
    class Nothing:
        ref = None

        async def working_dir(self) -> str:
            return '/'

    model = ScriptedModel('done')
    agent = Agent(model, deps_type=Tenant | None, capabilities=[Filesystem()])
    for refused in (agent.run('go', workspace=Nothing()), agent.run('go', deps=Tenant(Nothing()))):
        with pytest.raises(UserError, match='Nothing is not a backend'):
            await refused
    assert model.requests == []
