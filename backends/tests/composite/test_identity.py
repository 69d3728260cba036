"""The identity of a composite, from its parts."""

from __future__ import annotations

import json

from pydantic_deep_backends import BackendRef, CompositeBackend, StateBackend

from .conftest import Plain


def test_the_identity_is_that_of_the_parts() -> None:
    default, mem = StateBackend(), StateBackend()
    ref = CompositeBackend(default, {'/m': mem}).ref
    assert ref == CompositeBackend(default, {'/m/': mem}).ref
    assert ref != CompositeBackend(default, {'/n': mem}).ref
    assert isinstance(ref, BackendRef)
    assert json.loads(ref.id) == {'/': ['state', default.ref.id], '/m': ['state', mem.ref.id]}


def test_an_identity_of_another_kind_is_kept_and_a_missing_one_too() -> None:
    ref = CompositeBackend(Plain(ref=('provider', 1)), {}).ref
    assert ref is not None
    assert json.loads(ref.id) == {'/': "('provider', 1)"}
    assert CompositeBackend(StateBackend(), {'/m': Plain()}).ref is None
