"""Settings of versions: inherited defaults, overrides for one turn, and the effective settings of each request."""

from __future__ import annotations

import math
from typing import Any

import httpx
import pytest
from pydantic_ai import Agent

from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import ValidationError, VersionedAgent

from .conftest import MakeAgent, SpyStore

pytestmark = pytest.mark.anyio


def seen(agent: VersionedAgent[Any, Any]) -> list[dict[str, Any]]:
    model = agent.agent.model
    assert isinstance(model, ScriptedModel)
    return [dict(request.settings or {}) for request in model.requests]


async def test_children_and_clones_inherit_default_settings(make: MakeAgent):
    """000-15a: The model settings of a version are stored, and its children and clones have them too."""
    agent = make('one', 'two', 'three')
    root = await agent.create(model_settings={'temperature': 0, 'max_tokens': 50})

    child = await root.advance('a')
    clone = await child.clone()
    await clone.advance('b')
    await (await agent.load(child.id)).advance('c')

    assert child.model_settings == clone.model_settings == {'temperature': 0, 'max_tokens': 50}
    assert seen(agent) == [{'temperature': 0, 'max_tokens': 50}] * 3


async def test_settings_of_one_turn_override_the_defaults(make: MakeAgent):
    """000-15b: Settings of one call of `advance` win over those of the version, and are passed to the model."""
    agent = make('one', 'two')
    root = await agent.create(model_settings={'temperature': 0, 'max_tokens': 50})

    child = await root.advance('a', temperature=0.7, top_p=0.9)
    await child.advance('b')

    assert seen(agent) == [{'temperature': 0.7, 'max_tokens': 50, 'top_p': 0.9}, {'temperature': 0, 'max_tokens': 50}]
    assert child.model_settings == {'temperature': 0, 'max_tokens': 50}


@pytest.mark.parametrize(
    ('settings', 'name'),
    [
        ({'messages': []}, 'messages'),
        ({'model': 'x'}, 'model'),
        ({'tools': []}, 'tools'),
        ({'temprature': 1}, 'temprature'),
        ({'extra_body': {'messages': [], 'model': 'x'}}, 'extra_body'),
    ],
)
async def test_settings_cannot_set_messages_model_or_tools(make: MakeAgent, settings: Any, name: str):
    """000-19: `ValidationError.field` names the field that fails, and the message is `{field}: {message}`."""
    agent = make()

    with pytest.raises(ValidationError, match=f'^{name}: ') as caught:
        await agent.create(model_settings=settings)

    assert caught.value.field == name
    assert await agent.count() == 0
    root = await agent.create()
    with pytest.raises(ValidationError, match=f'^{name}: '):
        await root.with_metadata(model_settings=settings)
    if name != 'model':  # `advance` takes `model` as its own parameter
        with pytest.raises(ValidationError, match=f'^{name}: '):
            await root.advance('go', **settings)
        with pytest.raises(ValidationError, match=f'^{name}: '):
            root.advance_stream('go', **settings)


async def test_headers_are_not_stored(make: MakeAgent, store: SpyStore):
    headers = {'Authorization': 'Bearer SECRET'}
    agent = make('done', model_settings={'extra_headers': headers})
    root = await agent.create()
    with pytest.raises(ValidationError, match=r'^extra_headers: .* Set them on the provider'):
        await agent.create(model_settings={'extra_headers': headers})
    with pytest.raises(ValidationError, match=r'^extra_headers: '):
        await root.advance('go', extra_headers=headers)

    await root.advance('go')

    assert seen(agent) == [{'extra_headers': headers}]
    assert 'SECRET' not in str(store.commits)


@pytest.mark.parametrize('settings', [{'temperature': math.nan}, {'extra_body': {'a': [math.inf]}}])
async def test_nan_and_infinity_in_settings_are_refused(make: MakeAgent, settings: Any):
    name = next(iter(settings))
    agent = make()
    root = await agent.create()
    with pytest.raises(ValidationError, match=f'^{name}: JSON cannot hold this'):
        await agent.create(model_settings=settings)
    with pytest.raises(ValidationError, match=f'^{name}: JSON cannot hold this'):
        await root.advance('go', **settings)


async def test_setting_of_one_turn_need_not_be_serializable(make: MakeAgent):
    agent = make('done')
    timeout = httpx.Timeout(5)
    await (await agent.create()).advance('go', timeout=timeout)
    assert seen(agent) == [{'timeout': timeout}]


async def test_default_settings_must_be_serializable(make: MakeAgent):
    with pytest.raises(ValidationError, match=r'^timeout: JSON cannot hold this'):
        await make().create(model_settings={'timeout': object()})  # type: ignore[typeddict-item]


async def test_provider_settings_and_extra_body_are_stored(make: MakeAgent):
    settings: Any = {'openai_reasoning_effort': 'low', 'extra_body': {'top_k': 4}}

    root = await make().create(model_settings=settings)

    assert root.model_settings == settings


async def test_model_passed_to_a_turn_is_recorded(store: SpyStore):
    house = ScriptedModel('one', 'two', model_name='house')
    agent = VersionedAgent(Agent(ScriptedModel(), defer_model_check=True), store)
    root = await agent.create()

    child = await root.advance('a', model=house)

    assert child.model == 'scripted:house'
    [request] = await store.requests(child.run_id or '')
    assert request.model == 'house'


async def test_model_name_is_stored_with_the_settings(make: MakeAgent):
    """000-04, 000-15a: A model is a plain string, stored with the settings and inherited by children."""
    agent = make()
    root = await agent.create(model='test', model_settings={'temperature': 0})

    child = await root.with_metadata(model_settings={'temperature': 1})
    turn = await child.advance('hi')

    assert root.model == child.model == 'test'
    assert child.model_settings == {'temperature': 1}
    assert turn.model == 'test:test'
    assert (await turn.advance('again')).model == 'test:test'
