"""Which capabilities of a run are found as neighbours, and that it is what `isinstance` would find."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, Capability, WrapperCapability
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from pydantic_deep import Filesystem, Todos
from pydantic_deep._neighbours import Gates, NamesTools, Previews, Protects, neighbours


@dataclass
class Gating(AbstractCapability[object]):
    """Gates what it names."""

    def gates(self, tool_name: str) -> bool:
        return tool_name == 'rm'


@dataclass
class Unsure(AbstractCapability[object]):
    """Protects files, once somebody has told it which."""


class Open(Gating):
    """One that says that it gates nothing at all."""

    gates = cast('Any', None)


def found(kind: type[Any], *capabilities: AbstractCapability[Any]) -> list[Any]:
    by_id = {str(number): capability for number, capability in enumerate(capabilities)}
    ctx = RunContext[object](deps=None, model=TestModel(), usage=RunUsage(), capabilities=by_id)
    return neighbours(ctx, kind)


def test_they_are_found_in_their_order() -> None:
    first, second = Gating(), Gating()
    assert [id(each) for each in found(Gates, Todos(), first, Capability(), second)] == [id(first), id(second)]
    assert found(Gates, Todos()) == []


@pytest.mark.parametrize('kind', [Previews, NamesTools, Filesystem])
def test_one_capability_may_be_of_several_kinds(kind: type[Any]) -> None:
    files = Filesystem()
    assert found(kind, Todos(), files) == [files]


def test_what_is_wrapped_is_found_inside() -> None:
    gating = Gating()
    assert found(Gates, WrapperCapability(WrapperCapability(gating))) == [gating]
    assert found(Gating, WrapperCapability(gating)) == [gating]


def test_what_only_one_instance_has_counts_for_that_one() -> None:
    told, untold = Unsure(), Unsure()
    cast('Any', told).protected_paths = ['/secret']
    assert [id(each) for each in found(Protects, untold, told)] == [id(told)]


def test_what_a_subclass_has_taken_back_does_not_count() -> None:
    assert not isinstance(Open(), Gates)
    assert found(Gates, Open()) == []


def test_what_is_proxied_counts() -> None:
    class Proxy(AbstractCapability[object]):
        def __getattr__(self, name: str) -> object:
            return getattr(Gating(), name)

    proxy = Proxy()
    assert found(Gates, proxy) == [proxy]
