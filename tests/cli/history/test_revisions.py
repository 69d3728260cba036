"""Resolution of revisions: HEAD, ids, branches and names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from pydantic_deep import LocalBackend, create_deep_agent
from pydantic_deep.cli._metadata import DIRECTORY, TITLE
from pydantic_deep.cli.history._revisions import Revisions, UnknownVersionError
from pydantic_deep.store import (
    Store,
    VersionRecord,
    open_store,
)
from pydantic_deep.testing import ScriptedModel
from pydantic_deep.versions import VersionedAgent

pytestmark = pytest.mark.anyio

Invoke = Callable[..., Result]


def document(result: Result) -> Any:
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


async def make_versions(store: Store, work: Path, answers: int) -> list[str]:
    """Create a conversation through the Python API and return its version ids, root first."""
    agent = VersionedAgent(create_deep_agent(ScriptedModel(*['Done.'] * answers), name='house'), store)
    version = await agent.create(backend=LocalBackend(work))
    found = [version.id]
    for _ in range(answers):
        version = await version.advance('Go')
        found.append(version.id)
    return found


async def test_revisions_resolve_to_versions(store: Store, work: Path) -> None:
    ids = await make_versions(store, work, 3)
    revisions = Revisions(store=store, directory=str(work))
    expected = {
        'HEAD': 3, 'HEAD~': 2, 'HEAD~1': 2, 'HEAD~2': 1, 'HEAD~~': 1, 'HEAD~1~2': 0, 'HEAD~0': 3,
        ids[1]: 1, ids[1].upper(): 1, ids[1][-8:]: 1, ids[1][-4:]: 1, f'{ids[2][-8:]}~2': 0, ids[0][:30]: 0,
    }  # fmt: skip
    assert {name: ids.index((await revisions.find(name)).id) for name in expected} == expected


@pytest.mark.parametrize(
    ('name', 'sentence'),
    [
        ('~2', "'~2' names no version. Write HEAD"),
        ('HEAD~2', "'HEAD~2' names no version: "),
        (
            'abc',
            "There is no branch 'abc', and an id needs at least the last 4 of its characters. Branches: 'main'. `pydantic-deep log`",
        ),
        (
            'fff1',
            "There is no version 'fff1'. It was deleted, or belongs to another store. A prefix of an id must",
        ),
        ('side', "There is no version 'side'. Branches: 'main'. `pydantic-deep log` shows ids and branches."),
        ('ffffffffffff', "There is no version 'ffffffffffff'."),
        ('', "'' names no version."),
    ],
)
async def test_unknown_revision_raises_with_a_reason(store: Store, work: Path, name: str, sentence: str) -> None:
    await make_versions(store, work, 1)
    with pytest.raises(UnknownVersionError) as caught:
        await Revisions(store=store, directory=str(work)).find(name)
    assert str(caught.value).startswith(sentence)


async def test_ambiguous_id_suffix_is_refused(store: Store, work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = await make_versions(store, work, 1)
    revisions = Revisions(store=store, directory=str(work))
    records = [await store.version(id) for id in ids]

    async def versions(*args: object, before: int | None = None, **options: object) -> list[VersionRecord]:
        alike = [record._replace(id=f'{record.id[:28]}01234567') for record in records]
        return [] if before is not None else alike

    monkeypatch.setattr(store, 'versions', versions)
    with pytest.raises(
        UnknownVersionError, match=r"Several versions end with '01234567': .*, .*\. Write more of the id"
    ):
        await revisions.find('01234567')


async def test_head_falls_back_to_the_newest_version_after_deletion(store: Store, work: Path) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Done.')), store)
    root = await agent.create(metadata={DIRECTORY: str(work)}, backend=LocalBackend(work))
    revisions = Revisions(store=store, directory=str(work))
    turn = await root.advance('Go')
    assert (await revisions.find('HEAD')).id == turn.id
    await agent.delete(turn)
    assert (await revisions.find('HEAD')).id == root.id
    await agent.delete(root)
    with pytest.raises(UnknownVersionError, match='There is no HEAD'):
        await revisions.find('HEAD')


async def test_branch_resolves_to_its_newest_version(store: Store, work: Path) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel(*['Done.'] * 6)), store)
    revisions = Revisions(store=store, directory=str(work))
    options: dict[str, Any] = {'metadata': {DIRECTORY: str(work)}, 'backend': LocalBackend(work)}
    old = await (await agent.create(**options)).advance('Go', branch='old')
    root = await agent.create(**options)
    main = await root.advance('Go')
    side = await root.advance('Go', branch='Side')
    assert [(await revisions.find(name)).id for name in ('main', 'Side', 'Side~', 'old')] == [
        main.id,
        side.id,
        root.id,
        old.id,
    ]
    hidden = await main.advance('Go', branch=side.id[-8:])
    assert (await revisions.find(hidden.branch)).id == side.id
    with pytest.raises(UnknownVersionError, match="no version 'side'"):
        await revisions.find('side')


async def test_branch_of_several_other_conversations_is_refused(store: Store, work: Path) -> None:
    """A name that only other conversations have is ambiguous if two have it: the error lists ids and first prompts."""
    agent = VersionedAgent(create_deep_agent(ScriptedModel(*['Done.'] * 3)), store)
    here: dict[str, str] = {DIRECTORY: str(work)}
    first = await (await agent.create(metadata={**here, TITLE: 'Plan\nit'})).advance('Go', branch='side')
    second = await (await agent.create(metadata=here)).advance('Go', branch='side')
    await (await agent.create(metadata=here)).advance('Go')
    with pytest.raises(UnknownVersionError) as caught:
        await Revisions(store=store, directory=str(work)).find('side~')
    assert str(caught.value) == (
        f"Several conversations have a branch 'side'. Write the id of one: {second.id[-8:]}; {first.id[-8:]} (“Plan”)."
    )


async def test_version_name_resolves_to_the_newest_match(store: Store, work: Path, tmp_path: Path) -> None:
    agent = VersionedAgent(create_deep_agent(ScriptedModel('Done.', 'Done.')), store)
    elsewhere = Revisions(store=store, directory=str(tmp_path))
    here = Revisions(store=store, directory=str(work))
    first = await agent.create(name='café', metadata={DIRECTORY: str(work)})
    second = await agent.create(name='café')
    assert [(await revisions.find('café')).id for revisions in (here, elsewhere)] == [first.id, second.id]
    named = await first.with_metadata(name='good')
    assert [(await revisions.find('good')).id for revisions in (here, elsewhere)] == [named.id] * 2


async def test_parent_of_a_version_with_a_deleted_parent_raises(store: Store, work: Path) -> None:
    ids = await make_versions(store, work, 2)
    await store.delete(ids[1])
    with pytest.raises(UnknownVersionError, match='continues a version that was deleted'):
        await Revisions(store=store, directory=str(work)).find('HEAD~')


async def test_versions_of_the_python_api_can_be_logged_and_checked_out(
    invoke: Invoke, work: Path, tmp_path: Path
) -> None:
    url = f'sqlite:///{tmp_path}/house.db'
    async with open_store(url) as store:
        ids = await make_versions(store, work, 1)

    from anyio.to_thread import run_sync

    rows = document(await run_sync(lambda: invoke('log', '--store', url, '--json')))
    assert [row['id'] for row in rows] == ids[::-1]
    out = await run_sync(lambda: invoke('checkout', 'HEAD~', '--store', url))
    assert out.exit_code == 0
