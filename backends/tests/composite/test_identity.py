"""Identity of a composite, derived from its parts."""

from __future__ import annotations

import json

from pydantic_deep_backends import BackendRef, CompositeBackend, StateBackend

from .conftest import Plain


def test_ref_is_derived_from_the_parts() -> None:
    default, mem = StateBackend(), StateBackend()
    ref = CompositeBackend(default, {'/m': mem}).ref
    assert ref == CompositeBackend(default, {'/m/': mem}).ref
    assert ref != CompositeBackend(default, {'/n': mem}).ref
    assert isinstance(ref, BackendRef)
    assert json.loads(ref.id) == {'/': ['state', default.ref.id], '/m': ['state', mem.ref.id]}


def test_ref_includes_foreign_refs_and_is_none_without_one() -> None:
    ref = CompositeBackend(Plain(ref=('provider', 1)), {}).ref
    assert ref is not None
    assert json.loads(ref.id) == {'/': "('provider', 1)"}
    assert CompositeBackend(StateBackend(), {'/m': Plain()}).ref is None
