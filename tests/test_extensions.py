"""`find_capabilities`: the capabilities of a run that implement a protocol, by the same rules as `isinstance`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, Capability, WrapperCapability
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from pydantic_deep import Filesystem, Todos
from pydantic_deep.extensions import (
    SupportsApprovalGate,
    SupportsHiddenTools,
    SupportsPreview,
    SupportsProtectedPaths,
    find_capabilities,
)


@dataclass
class Gating(AbstractCapability[object]):
    """Gates the tool `rm`."""

    def may_require_approval(self, tool_name: str) -> bool:
        return tool_name == 'rm'


@dataclass
class Unsure(AbstractCapability[object]):
    """Protects files only if an instance has `protected_paths`."""


class Open(Gating):
    """A capability without an approval gate."""

    may_require_approval = cast('Any', None)


def found(kind: type[Any], *capabilities: AbstractCapability[Any]) -> list[Any]:
    by_id = {str(number): capability for number, capability in enumerate(capabilities)}
    ctx = RunContext[object](deps=None, model=TestModel(), usage=RunUsage(), capabilities=by_id)
    return find_capabilities(ctx, kind)


def test_capabilities_are_found_in_their_order() -> None:
    first, second = Gating(), Gating()
    assert [id(each) for each in found(SupportsApprovalGate, Todos(), first, Capability(), second)] == [
        id(first),
        id(second),
    ]
    assert found(SupportsApprovalGate, Todos()) == []


@pytest.mark.parametrize('kind', [SupportsPreview, SupportsHiddenTools, Filesystem])
def test_capability_can_implement_several_protocols(kind: type[Any]) -> None:
    files = Filesystem()
    assert found(kind, Todos(), files) == [files]


def test_wrapped_capability_is_found() -> None:
    gating = Gating()
    assert found(SupportsApprovalGate, WrapperCapability(WrapperCapability(gating))) == [gating]
    assert found(Gating, WrapperCapability(gating)) == [gating]


def test_instance_attribute_counts_for_that_instance() -> None:
    told, untold = Unsure(), Unsure()
    cast('Any', told).protected_paths = ['/secret']
    assert [id(each) for each in found(SupportsProtectedPaths, untold, told)] == [id(told)]


def test_protocol_removed_by_a_subclass_does_not_count() -> None:
    assert not isinstance(Open(), SupportsApprovalGate)
    assert found(SupportsApprovalGate, Open()) == []


def test_proxied_attribute_counts() -> None:
    class Proxy(AbstractCapability[object]):
        def __getattr__(self, name: str) -> object:
            return getattr(Gating(), name)

    proxy = Proxy()
    assert found(SupportsApprovalGate, proxy) == [proxy]
