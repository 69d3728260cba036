"""Preparation of commits: digests that contents mention, and metadata in a form that databases can compare."""

from __future__ import annotations

import pytest

from pydantic_deep.store import Commit, NewAsset
from pydantic_deep.store._samples import MOMENT, sample_asset, sample_run
from pydantic_deep.store.sql._commit_rows import Scalar, canonical, digests_in, fields_of, prepare, size_of
from pydantic_deep_backends import digest_of

ONE, TWO = digest_of(b'1'), digest_of(b'2')


def test_each_mentioned_digest_is_found_once() -> None:
    data = f'{{"a": "{TWO}", "b": ["{ONE}", "{TWO}"], "c": "sha256:short"}}'.encode() + b'\xff'
    assert digests_in(data) == sorted([ONE, TWO])
    assert digests_in(b'no digest') == []


@pytest.mark.parametrize(
    ('one', 'other', 'is_equal'),
    [(1, 1.0, True), (1, True, False), (0, False, False), (1, '1', False), (0.5, 0.5, True), (None, 'null', False)],
)
def test_equal_values_have_one_form(one: Scalar, other: Scalar, is_equal: bool) -> None:
    assert (canonical(one) == canonical(other)) is is_equal


def test_metadata_are_filterable_by_scalars_only() -> None:
    fields = dict(fields_of('{"a": 1.0, "b": [1], "c": {"d": 2}, "e": null, "a\\u0000": "\\ud800"}'))
    assert fields == {'a': '1', 'e': 'null', 'a\\0': '"\\ud800"'}


@pytest.mark.parametrize('metadata', ['[1]', '1', '{', ''])
def test_metadata_must_be_an_object(metadata: str) -> None:
    with pytest.raises(ValueError, match='must be a JSON object'):
        fields_of(metadata)


def test_only_json_assets_mention_others() -> None:
    mention = f'{{"a": "{ONE}"}}'.encode()
    assets = [sample_asset(mention, 'application/json'), sample_asset(mention + b' ', 'text/plain')]
    prepared = prepare(Commit(assets=assets), MOMENT)
    assert prepared.mentions == {assets[0].digest: [ONE]}


def test_size_of_a_commit_is_that_of_its_contents() -> None:
    assert size_of(Commit(assets=[sample_asset(b'12345')], nodes={ONE: b'123'}, runs=[sample_run('c')])) == 8


def test_contents_with_another_digest_are_refused() -> None:
    with pytest.raises(ValueError, match=f'Contents of 1 bytes have the digest {TWO!r}, not {ONE!r}'):
        prepare(Commit(assets=[NewAsset(digest=ONE, data=b'2')]), MOMENT)
