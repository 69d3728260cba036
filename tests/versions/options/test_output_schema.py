"""Turns with a JSON schema for their output."""

from __future__ import annotations

import importlib
import sys
from typing import Any, cast

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent

from pydantic_deep.approvals import Approve
from pydantic_deep.errors import TurnOptionError
from pydantic_deep.testing import ScriptedModel, call
from pydantic_deep.versions import TurnOptions
from pydantic_deep.versions.options import _output_schema
from tests.versions.conftest import MakeAgent

pytestmark = pytest.mark.anyio

NUMBER: dict[str, Any] = {'type': 'object', 'properties': {'n': {'type': 'integer'}}, 'required': ['n']}


async def test_output_is_valid_by_the_schema(make: MakeAgent):
    """The model repeats an output that is not valid, with the reason."""
    model = ScriptedModel(call('final_result', n='three'), call('final_result', n=3))
    root = await make(model=model).create()
    version = await root.run(TurnOptions(prompt='How many?', output_schema=NUMBER))

    assert version.output == {'n': 3}
    assert '/n: "three" is not of type "integer"' in str(model.requests[1].messages)


async def test_schema_applies_to_one_turn_and_the_output_of_the_agent_stays(make: MakeAgent):
    root = await make(call('final_result', n=3), 'Three.').create()
    version = await root.run(TurnOptions(prompt='How many?', output_schema=NUMBER))

    assert (await version.advance('In words?')).output == 'Three.'


async def test_output_may_be_a_list_with_definitions(make: MakeAgent):
    schema: dict[str, Any] = {'type': 'array', 'items': {'$ref': '#/$defs/N'}, '$defs': {'N': NUMBER}}
    root = await make(call('final_result', response=[{'n': 1}, {'n': 2}])).create()

    assert (await root.run(TurnOptions(prompt='a', output_schema=schema))).output == [{'n': 1}, {'n': 2}]


async def test_agent_with_an_output_type_accepts_a_schema(make_plain: MakeAgent):
    class Sum(BaseModel):
        total: int

    root = await make_plain(call('final_result', n=3), output_type=Sum).create()

    assert (await root.run(TurnOptions(prompt='a', output_schema=NUMBER))).output == {'n': 3}


async def test_turn_that_resumes_has_the_schema_of_the_one_that_paused(make: MakeAgent):
    agent = make(
        call('write_file', path='/a', content='b'), call('final_result', n=3), interrupt_on={'write_file': True}
    )
    paused = await (await agent.create()).run(TurnOptions(prompt='a', output_schema=NUMBER))

    assert (await paused.resume({paused.pending[0].id: Approve()})).output == {'n': 3}


@pytest.mark.parametrize(
    ('schema', 'match'),
    [
        ({'type': 'whole'}, 'not a JSON schema that can be used'),
        ({'$ref': 'http://127.0.0.1/a.json'}, 'is not fetched'),
        ({'type': 'string', 'pattern': '(a)\\1'}, 'not a JSON schema that can be used'),
        ({'$ref': '#/$defs/None'}, 'not a JSON schema that can be used'),
        ({'type': 'object', 'properties': {'next': {'$ref': '#'}}}, 'the schema is recursive'),
    ],
)
async def test_schema_that_cannot_be_used_is_refused(make: MakeAgent, schema: dict[str, Any], match: str):
    root = await make().create()

    with pytest.raises(TurnOptionError, match=match):
        root.stream(TurnOptions(prompt='a', output_schema=schema))


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, 'jsonschema_rs', None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'versioned-deep-agents\[server\]'"):
        importlib.reload(_output_schema)


async def test_agent_with_output_validators_refuses_a_schema(make_plain: MakeAgent):
    """Its validators accept only its own output type."""
    agent = make_plain('Never.')
    cast('Agent[Any, Any]', agent.agent).output_validator(str.upper)
    root = await agent.create()

    with pytest.raises(TurnOptionError, match='output_schema: the agent has output validators'):
        await root.run(TurnOptions(prompt='a', output_schema=NUMBER))
