"""Rules about assets and trees."""

from __future__ import annotations

import pytest

from pydantic_deep.store._protocol import Store
from pydantic_deep.store._samples import Dialogue, sample_asset
from pydantic_deep.store.errors import AssetNotFoundError
from pydantic_deep.store.records import Commit, NewAsset, VersionFilter
from pydantic_deep_backends.snapshots import FileVersion, Tree, digest_of

from ._base import StoreRules

_ODD_TEXTS = (
    '',
    ' ',
    "it's",
    '"; DROP TABLE version; --',
    '%',
    '_',
    '\\',
    'é',
    '日本語',
    '🙂',
    '\u202e',
    'a\nb',
    '\x01',
)
"""Texts that must be stored unchanged."""


_REFUSED_TEXTS = ('a\0b', '\ud800', 'a\udcffb')
"""Texts that not every database can store."""


class ContentRules(StoreRules):
    """Rules about assets and trees."""

    async def test_contents_are_read_unchanged(self, store: Store) -> None:
        datas = [b'', b'x', bytes(range(256)) * 9, b'{"kind":"request"}' * 20, b'\0' * 1_000_000]
        assets = [sample_asset(data, f'text/{index}') for index, data in enumerate(datas)]
        await store.commit(Commit(assets=assets))
        for asset in assets:
            record = await store.asset(asset.digest)
            assert (record.data, record.media_type, record.size_bytes) == (
                asset.data,
                asset.media_type,
                len(asset.data),
            )

    async def test_equal_contents_are_stored_once(self, store: Store) -> None:
        asset = sample_asset(b'contents', 'text/plain')
        await store.commit(Commit(assets=[asset]))
        first = await store.asset(asset.digest)
        await store.commit(Commit(assets=[sample_asset(b'contents', 'other/type')] * 2))
        assert await store.asset(asset.digest) == first
        assert await store.has_assets([asset.digest, digest_of(b'missing')]) == {asset.digest}
        assert await store.has_assets([]) == set()

    async def test_contents_must_match_their_digest(self, store: Store) -> None:
        wrong = digest_of(b'other')
        with pytest.raises(ValueError, match=wrong):
            await store.commit(Commit(assets=[NewAsset(digest=wrong, data=b'contents')]))
        with pytest.raises(ValueError, match=wrong):
            await store.commit(Commit(nodes={wrong: b'contents'}))
        with pytest.raises(AssetNotFoundError, match=wrong):
            await store.asset(wrong)

    async def test_tree_is_loaded_from_its_nodes(self, dialogue: Dialogue) -> None:
        files = {f'/d{n % 7}/e/f{n}': FileVersion(digest=digest_of(b'%d' % n), size=n, mode=0o644) for n in range(60)}
        tree = Tree.of(files)
        await dialogue.store.commit(Commit(nodes=dict(tree.nodes())))
        nodes = await dialogue.store.nodes(tree.digest)
        assert Tree.from_nodes(tree.digest, nodes) == tree
        with pytest.raises(AssetNotFoundError):
            await dialogue.store.nodes(digest_of(b'missing'))

    async def test_unusual_text_is_stored_unchanged(self, dialogue: Dialogue) -> None:
        version = await dialogue.begin()
        for text in _ODD_TEXTS:
            version = await dialogue.add(version, text.encode(), name=text, model=text, run_id=text, output=text)
            assert await dialogue.store.version(version.id) == version
        assert await dialogue.history(version) == [text.encode() for text in _ODD_TEXTS]
        large = '🙂' * 250_000
        assert (await dialogue.store.version((await dialogue.add(version, b'1', name=large)).id)).name == large

    async def test_unstorable_text_is_refused(self, dialogue: Dialogue) -> None:
        root = await dialogue.begin()
        for text in _REFUSED_TEXTS:
            with pytest.raises(ValueError, match=r'NUL|half'):
                await dialogue.add(root, b'1', name=text)
            with pytest.raises(ValueError, match=r'NUL|half'):
                await dialogue.store.version(text)
            with pytest.raises(ValueError, match=r'NUL|half'):
                await dialogue.store.versions(VersionFilter(name=text))
        with pytest.raises(ValueError, match='JSON object'):
            await dialogue.add(root, b'1', metadata='[]')
        with pytest.raises(ValueError, match='JSON object'):
            await dialogue.add(root, b'1', metadata='{')
        assert await dialogue.store.count() == 1
