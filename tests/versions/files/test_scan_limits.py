"""Turns on a directory with too many entries for one scan: they raise an error with the limit and lose nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic_ai import RunContext

from pydantic_deep import DeepAgentDeps, LocalBackend
from pydantic_deep.testing import call
from pydantic_deep_backends import ScanLimitError, _scan_budget
from tests.versions.conftest import MakeAgent

pytestmark = pytest.mark.anyio

MESSAGE = r'more than 10 files and directories, .* List unneeded files in a `.gitignore`'


def fill(directory: Path, count: int) -> None:
    for number in range(count):
        (directory / f'{number}.txt').write_text('')


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 10)


@pytest.mark.usefixtures('few')
async def test_turn_over_too_many_files_is_refused_until_they_are_ignored(make: MakeAgent, tmp_path: Path) -> None:
    """Nothing is stored and the directory is released, so the next turn works with fewer files."""
    agent = make('done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    fill(tmp_path, 20)
    with pytest.raises(ScanLimitError, match=MESSAGE):
        await root.advance('go')
    assert [version.id for version in await agent.store.versions()] == [root.id]
    (tmp_path / '.gitignore').write_text('*.txt')
    done = await root.advance('go')
    assert list(await done.file_tree()) == ['/.gitignore']


@pytest.mark.usefixtures('few')
async def test_turn_that_creates_too_many_files_fails_and_preserves_its_steps(make: MakeAgent, tmp_path: Path) -> None:
    """No version records unscanned files as removed; the next turn continues with the existing files."""

    async def build(ctx: RunContext[DeepAgentDeps]) -> str:
        """Build."""
        fill(tmp_path, 20)
        return 'done'

    agent = make(call('write_file', path='/a', content='x'), call('build'), 'never', 'again', tools=[build])
    root = await agent.create(backend=LocalBackend(tmp_path))
    with pytest.raises(ScanLimitError, match=MESSAGE) as failed:
        await root.advance('go')
    assert 'The run is stored up to version' in failed.value.__notes__[0]
    last = (await agent.store.versions())[0]
    assert (last.kind, last.state) == ('step', 'interrupted')
    [run] = await agent.store.runs(conversation_id=root.conversation_id)
    assert run.state == 'failed'
    assert 'more than 10 files' in str(run.error)
    with pytest.raises(ScanLimitError):
        await (await agent.load(last.id)).advance('again')
    for path in tmp_path.glob('*.txt'):
        path.unlink()
    done = await (await agent.load(last.id)).advance('again')
    assert list(await done.file_tree()) == ['/a']


async def test_checkout_over_too_many_files_changes_nothing(
    make: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files and the workspace record are unchanged, and the checkout can be repeated."""
    agent = make(call('write_file', path='/a', content='x'), 'done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    await root.advance('go')
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 10)
    (tmp_path / 'data').mkdir()
    fill(tmp_path / 'data', 20)
    with pytest.raises(ScanLimitError, match=MESSAGE):
        await root.checkout()
    assert (tmp_path / 'a').read_text() == 'x'
    for path in (tmp_path / 'data').iterdir():
        path.unlink()
    await root.checkout()
    assert not (tmp_path / 'a').exists()


async def test_protected_scan_that_exceeds_its_limit_fails_the_turn(
    make: MakeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`.gitignore` does not limit the scan for protected files; a turn that cannot complete it raises."""
    (tmp_path / '.gitignore').write_text('data/')
    for number in range(20):
        (tmp_path / 'data' / str(number)).mkdir(parents=True)
    agent = make('done')
    root = await agent.create(backend=LocalBackend(tmp_path))
    monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 10)
    with pytest.raises(ScanLimitError, match=r'more than 10 files and directories, .* Use a smaller directory.'):
        await root.advance('go')
    assert [version.id for version in await agent.store.versions()] == [root.id]
    monkeypatch.undo()
    assert (await root.advance('go')).state == 'complete'
