"""Outputs have the type of the agent in every process."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import DeferredToolRequests, NativeOutput, PromptedOutput, TextOutput, ToolOutput

from pydantic_deep.testing import Answer, call
from pydantic_deep.versions._output_types import output_adapter
from tests.versions.conftest import MakeAgent

pytestmark = pytest.mark.anyio


class Fruit(BaseModel):
    name: str
    grams: int


class Car(BaseModel):
    wheels: int


class Lock:
    """A type without a JSON schema."""


@dataclass
class Point:
    x: int


OUTPUTS: list[tuple[Any, Answer, object]] = [
    (str, 'text', 'text'),
    (Fruit, call('final_result', name='fig', grams=3), Fruit(name='fig', grams=3)),
    (list[Fruit], call('final_result', response=[{'name': 'fig', 'grams': 3}]), [Fruit(name='fig', grams=3)]),
    (dict[str, int], call('final_result', response={'a': 3}), {'a': 3}),
    (Point, call('final_result', x=3), Point(3)),
    (bool, call('final_result', response=True), True),
    ([Fruit, Car], call('final_result_Car', wheels=4), Car(wheels=4)),
    (Fruit | Car, call('final_result_Fruit', name='fig', grams=3), Fruit(name='fig', grams=3)),
    ([Fruit, str], 'no fruit', 'no fruit'),
    ([str, Car], call('final_result', wheels=4), Car(wheels=4)),
    (ToolOutput(Car, name='car'), call('car', wheels=4), Car(wheels=4)),
    ([ToolOutput(Fruit, name='fruit'), ToolOutput(Car, name='car')], call('car', wheels=4), Car(wheels=4)),
    (NativeOutput(Car), '{"wheels": 4}', Car(wheels=4)),
    (PromptedOutput([Car]), '{"wheels": 4}', Car(wheels=4)),
    ([Car, DeferredToolRequests], call('final_result', wheels=4), Car(wheels=4)),
    (Car | None, call('final_result_Car', wheels=4), Car(wheels=4)),
]


@pytest.mark.parametrize(('output_type', 'answer', 'output'), OUTPUTS)
async def test_output_has_its_type_in_every_process(
    make_plain: MakeAgent, output_type: Any, answer: Answer, output: object
):
    turn = await (await make_plain(answer, output_type=output_type).create()).advance('go')

    loaded = await make_plain(output_type=output_type).load(turn.id)

    assert turn.output == output
    assert loaded.output == output
    assert type(loaded.output) is type(output)
    assert bool(await turn.replay())


async def test_results_of_output_functions_are_stored(make_plain: MakeAgent):
    def shout(text: str) -> str:
        return text.upper()

    def weigh(fruit: Fruit) -> int:
        return fruit.grams

    loud = await (await make_plain('text', output_type=TextOutput(shout)).create()).advance('go')
    heavy = await (await make_plain(call('final_result', name='fig', grams=3), output_type=weigh).create()).advance(
        'go'
    )

    assert (loud.output, heavy.output) == ('TEXT', 3)


def unannotated(text: str) -> list[str]:
    return [text]


def misnamed(text: str) -> object:
    return {'grams': text}


unannotated.__annotations__.clear()


misnamed.__annotations__['return'] = 'Nowhere'


@pytest.mark.parametrize(
    ('spec', 'text', 'output'),
    [
        (unannotated, '["a"]', ['a']),
        (misnamed, '{"grams": 3}', {'grams': 3}),
        ([str, TextOutput(unannotated)], '"a"', 'a'),
        (object, '[1]', [1]),
        ([DeferredToolRequests], '[1]', [1]),
        (Lock, '"a lock"', 'a lock'),
    ],
)
def test_output_of_unknown_type_is_loaded_as_json(spec: object, text: str, output: object):
    assert output_adapter(spec).validate_json(text) == output
