"""Uploads over HTTP: raw bytes that are stored at once and available to the next turn, also in another process."""

from __future__ import annotations

import shutil
import warnings
from collections.abc import AsyncGenerator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo

from pydantic_deep import DeepAgentDeps, LocalBackend, StateBackend, create_deep_agent, deps
from pydantic_deep.deps import MAX_FILE_BYTES
from pydantic_deep.errors import UploadNotFoundError
from pydantic_deep.server import InvalidSettingsError, ServerSettings, load_settings
from pydantic_deep.store import VersionConflictError
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, ProtectedFilesWarning, UnversionedFilesWarning, VersionedConversation
from pydantic_deep_backends import _scan_budget
from tests.server.conftest import Client, Gate, MakeClient, Serve

pytestmark = pytest.mark.anyio


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call the tool named in the prompt, and return its result."""
    last = messages[-1]
    assert isinstance(last, ModelRequest)
    said = [str(part.content) for part in last.parts if isinstance(part, UserPromptPart)]
    if not said:
        return f'{[getattr(part, "content", None) for part in last.parts]}'
    tool, _, path = said[-1].partition(' ')
    return call(tool, path=path) if path else call(tool)


@pytest.fixture
def agents(gate: Gate) -> Mapping[str, Any]:
    model = ScriptedModel(then=answer)
    return {
        'analyst': create_deep_agent(model, tools=[gate.hold]),
        'careful': create_deep_agent(model, interrupt_on={'ls': True}),
    }


@pytest.fixture
async def ada(make_client: MakeClient) -> Client:
    return await make_client('run')


async def begin(client: Client, agent: str = 'analyst') -> str:
    return (await client.post('/api/conversations', json={'agent': agent})).headers['location']


async def test_upload_is_available_to_the_next_turn(ada: Client):
    path = await begin(ada)

    created = await ada.put(f'{path}/uploads/2026/sales.csv', content=b'month,sum\nmay,4\n')
    run = (await ada.post(f'{path}/turns', json={'prompt': 'read_file /uploads/2026/sales.csv'})).json()

    assert created.status_code == 201
    body = created.json()
    assert body['upload'] == {
        'name': '2026/sales.csv', 'path': '/uploads/2026/sales.csv', 'size_bytes': 16, 'encoding': 'utf-8',
        'line_count': 2, 'media_type': 'text/csv',
    }  # fmt: skip
    assert 'may,4' in run['output']
    assert run['base_id'] == body['version_id']
    assert (await ada.get(f'{path}/uploads')).json() == {'items': [body['upload']]}
    kinds = [each['kind'] for each in (await ada.get(f'{path}/versions')).json()['items']]
    assert kinds == ['turn', 'edit', 'root']


async def test_upload_replaces_an_existing_name(ada: Client):
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'one')

    same = await ada.put(f'{path}/uploads/a', content=b'one')
    other = await ada.put(f'{path}/uploads/a', content=b'other')

    assert (same.status_code, other.status_code) == (201, 201)
    assert (same.json()['upload']['size_bytes'], other.json()['upload']['size_bytes']) == (3, 5)
    assert [each['size_bytes'] for each in (await ada.get(f'{path}/uploads')).json()['items']] == [5]
    version = other.json()['version_id']
    assert (await ada.get(f'/api/versions/{version}/files/uploads/a')).content == b'other'


async def test_upload_names_outside_the_directory_are_refused(ada: Client):
    path = await begin(ada)

    for name in ('..%2fa', 'a/..%2f..%2f..%2fb', '%2fetc/passwd', '%00'):
        refused = await ada.put(f'{path}/uploads/{name}', content=b'x')
        assert refused.status_code in {404, 422}, name
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}


async def test_upload_names_that_cannot_be_stored_are_explained(ada: Client):
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'x')

    below = await ada.put(f'{path}/uploads/a/b', content=b'x')
    broken = await ada.put(f'{path}/uploads/a%0Ab', content=b'x')

    assert (below.status_code, broken.status_code) == (422, 404)
    assert 'a parent of it is a file' in below.json()['error']['message']
    assert broken.json()['error']['message'].startswith('No path of this server contains a line break.')


async def test_large_uploads_are_refused(serve: Serve, settings: ServerSettings):
    small = settings.model_copy(update={'max_upload_bytes': 1000, 'max_body_bytes': 500})

    async def pieces() -> AsyncGenerator[bytes]:
        for _ in range(11):
            yield b'x' * 100

    async with serve(settings=small) as served:
        ada = served.client(await served.key())
        path = await begin(ada)

        announced = await ada.put(f'{path}/uploads/a', content=b'', headers={'content-length': str(10 * 2**30)})
        streamed = await ada.put(f'{path}/uploads/a', content=pieces())
        fits = await ada.put(f'{path}/uploads/a', content=b'x' * 1000)

        assert (announced.status_code, streamed.status_code, fits.status_code) == (413, 413, 201)
        await ada.aclose()


async def test_upload_during_a_run_or_a_pending_approval_is_a_conflict(ada: Client, gate: Gate):
    path, careful = await begin(ada), await begin(ada, 'careful')
    await ada.post(f'{careful}/turns', json={'prompt': 'ls /'})
    run = (await ada.post(f'{path}/turns', json={'prompt': 'hold'}, params={'wait': 'false'})).json()

    busy = await ada.put(f'{path}/uploads/a', content=b'x')
    waiting = await ada.put(f'{careful}/uploads/a', content=b'x')
    deleted = await ada.delete(path)

    assert (busy.status_code, busy.json()['error']['run_id']) == (409, run['id'])
    assert (waiting.status_code, len(waiting.json()['error']['pending'])) == (409, 1)
    assert deleted.status_code == 409
    gate.opened.set()


async def test_upload_is_refused_if_the_head_moves(ada: Client):
    path = await begin(ada)

    async def slowly() -> AsyncGenerator[bytes]:
        yield b'one'
        await ada.post(f'{path}/turns', json={'prompt': 'ls /'})
        yield b'two'

    assert (await ada.put(f'{path}/uploads/a', content=slowly())).status_code == 409
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}


async def test_version_lists_protected_files_changed_by_its_turn(serve: Serve, tmp_path: Path):
    def open_files(owner: str, id: str) -> LocalBackend:
        return LocalBackend(tmp_path)

    def sneak() -> str:
        (tmp_path / '.git').mkdir()
        (tmp_path / '.git' / 'config').write_text('evil')
        return 'ok'

    agents = {'plain': create_deep_agent(ScriptedModel(call('sneak'), 'done', 'again'), tools=[sneak])}
    async with serve(agents, make_backend=open_files) as served:
        ada = served.client(await served.key())
        path = (await ada.post('/api/conversations', json={'agent': 'plain'})).headers['location']
        with pytest.warns(ProtectedFilesWarning):
            run = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
        version = (await ada.get(f'/api/versions/{run["version_id"]}')).json()
        assert version['protected_changes'] == [{'path': '/.git/config', 'change': 'added'}]
        assert version['files_changed'] == []
        run = (await ada.post(f'{path}/turns', json={'prompt': 'more'})).json()
        assert (await ada.get(f'/api/versions/{run["version_id"]}')).json()['protected_changes'] == []


def opens(root: Path) -> Callable[[str, str], LocalBackend]:
    """Return a function that opens the same directory for all conversations."""

    def open_files(owner: str, id: str) -> LocalBackend:
        return LocalBackend(root)

    return open_files


@pytest.mark.parametrize('api', ['ours', 'branch'])
async def test_turn_in_a_replaced_directory_is_refused_before_a_run_is_created(serve: Serve, tmp_path: Path, api: str):
    """The response is 409 with instructions; no run is created and no file changes. After the directory is emptied, the
    turn restores the files of the version."""
    root = tmp_path / 'root'
    root.mkdir()
    (root / 'a.txt').write_text('one')
    agents = {'plain': create_deep_agent(ScriptedModel('done', 'again'))}
    async with serve(agents, make_backend=opens(root)) as served:
        ada = served.client(await served.key())
        path = (await ada.post('/api/conversations', json={'agent': 'plain'})).headers['location']
        first = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
        shutil.rmtree(root)
        root.mkdir()
        (root / 'other.txt').write_text('mine')
        route, body = {
            'ours': (f'{path}/turns', {'prompt': 'more'}),
            'branch': (f'/api/versions/{first["version_id"]}/branch', {'prompt': 'more'}),
        }[api]
        for _ in range(2):
            refused = await ada.post(route, json=body)
            assert refused.status_code == 409, refused.text
            assert 'was replaced, and contains other files' in refused.json()['error']['message']
        assert [each['id'] for each in (await ada.get('/api/runs')).json()['items']] == [first['id']]
        assert [each.name for each in root.iterdir()] == ['other.txt']
        (root / 'other.txt').unlink()
        assert (await ada.post(route, json=body)).status_code == 200
        assert [each.name for each in root.iterdir()] == ['a.txt']


async def test_directory_replaced_after_the_check_fails_the_run(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The directory may be replaced between the check and the run. The test simulates this with a check that finds
    nothing."""
    root = tmp_path / 'root'
    root.mkdir()
    (root / 'a.txt').write_text('one')
    agents = {'plain': create_deep_agent(ScriptedModel('done'))}
    async with serve(agents, make_backend=opens(root)) as served:
        ada = served.client(await served.key())
        path = (await ada.post('/api/conversations', json={'agent': 'plain'})).headers['location']
        shutil.rmtree(root)
        root.mkdir()
        (root / 'other.txt').write_text('mine')

        async def see_nothing(*args: object) -> None:
            pass

        monkeypatch.setattr(AgentVersion, 'check_directory', see_nothing)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'more'})).json()
        assert (run['state'], run['version_id']) == ('failed', None)
        assert 'other.txt' in run['error']['message']
        assert [each.name for each in root.iterdir()] == ['other.txt']


async def test_version_lists_protected_files_restored_into_a_new_directory(serve: Serve, tmp_path: Path):
    """A version may contain files that programs of the host obey. Restoring them is reported like a change."""
    root = tmp_path / 'root'
    root.mkdir()
    (root / '.envrc').write_text('export A=1')
    agents = {'plain': create_deep_agent(ScriptedModel('done', 'again'))}
    async with serve(agents, make_backend=opens(root)) as served:
        ada = served.client(await served.key())
        path = (await ada.post('/api/conversations', json={'agent': 'plain'})).headers['location']
        shutil.rmtree(root)
        for changes in ([{'path': '/.envrc', 'change': 'added'}], []):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter('always')
                run = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
            assert len([each for each in caught if each.category is ProtectedFilesWarning]) == len(changes)
            assert (await ada.get(f'/api/versions/{run["version_id"]}')).json()['protected_changes'] == changes


async def test_backend_of_a_conversation_can_be_a_directory(serve: Serve, tmp_path: Path):
    def make_backend(owner: str, conversation_id: str) -> LocalBackend:
        root = tmp_path / owner / conversation_id
        root.mkdir(parents=True, exist_ok=True)
        return LocalBackend(root)

    async with serve(make_backend=make_backend) as served:
        ada = served.client(await served.key())
        path = await begin(ada)

        await ada.put(f'{path}/uploads/a', content=b'x')
        run = (await ada.post(f'{path}/turns', json={'prompt': 'read_file uploads/a'})).json()

        assert run['state'] == 'complete'
        root = tmp_path / 'ada' / path.rpartition('/')[2]
        assert (root / 'uploads' / 'a').read_bytes() == b'x'
        assert (await ada.get(f'/api/versions/{run["version_id"]}/files/uploads/a')).content == b'x'
        await ada.aclose()


async def test_too_many_files_are_an_error_with_the_limit(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A turn fails with the message, an upload is a conflict with the same message, and both leave no trace."""

    def make_backend(owner: str, id: str) -> LocalBackend:
        return LocalBackend(tmp_path)

    async with serve(make_backend=make_backend) as served:
        ada = served.client(await served.key())
        path = await begin(ada)
        for number in range(10):
            (tmp_path / str(number)).write_text('')
        monkeypatch.setattr(_scan_budget, 'MAX_SCAN_ENTRIES', 5)
        run = (await ada.post(f'{path}/turns', json={'prompt': 'ls /'})).json()
        sentence = 'The directory has more than 5 files and directories, the most for one call. List unneeded files '
        assert (run['state'], run['error']['message'][: len(sentence)]) == ('failed', sentence)
        refused = await ada.put(f'{path}/uploads/a', content=b'x')
        assert (refused.status_code, refused.json()['error']['type']) == (409, 'conflict')
        assert refused.json()['error']['message'].startswith(sentence)
        monkeypatch.undo()
        assert (await ada.get(f'{path}/uploads')).json()['items'] == []
        run = (await ada.post(f'{path}/turns', json={'prompt': 'ls /'})).json()
        assert run['state'] == 'complete'
        await ada.aclose()


async def test_uploads_of_another_owner_are_not_found(ada: Client, make_client: MakeClient):
    """004-09: Authentication/authorization flows."""
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'x')
    bob = await make_client('run', owner='bob')

    assert (await bob.get(f'{path}/uploads')).status_code == 404
    assert (await bob.put(f'{path}/uploads/a', content=b'y')).status_code == 404


async def test_agent_without_deep_agent_deps_refuses_uploads(serve: Serve):
    async with (
        serve({'plain': Agent(ScriptedModel('Hi.'))}) as served,
        served.client(await served.key('run')) as client,
    ):
        conversation = (await client.post('/api/conversations', json={'agent': 'plain'})).json()['id']
        refused = await client.put(f'/api/conversations/{conversation}/uploads/a.txt', content=b'a')

    assert refused.status_code == 409
    assert refused.json()['error']['type'] == 'conflict'


@pytest.mark.slow
async def test_upload_size_limit_equals_the_file_size_limit(ada: Client):
    """A response of 201 means that the file is in the version, up to the largest size. Above it, the response is 413
    with the limit."""
    path = await begin(ada)

    largest = await ada.put(f'{path}/uploads/a.bin', content=bytes(MAX_FILE_BYTES))
    larger = await ada.put(f'{path}/uploads/b.bin', content=bytes(MAX_FILE_BYTES + 1))

    files = (await ada.get(f'/api/versions/{largest.json()["version_id"]}/files')).json()['items']
    assert (largest.status_code, [(each['path'], each['size_bytes']) for each in files]) == (
        201, [('/uploads/a.bin', MAX_FILE_BYTES)],
    )  # fmt: skip
    assert larger.status_code == 413
    assert str(MAX_FILE_BYTES) in larger.json()['error']['message']
    assert ServerSettings().max_upload_bytes == MAX_FILE_BYTES
    with pytest.raises(InvalidSettingsError, match='max_upload_bytes'):
        load_settings(max_upload_bytes=MAX_FILE_BYTES + 1)


async def test_lower_file_size_limit_of_the_agent_is_reported(ada: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deps, 'MAX_FILE_BYTES', 3)  # the middleware still has the original limit
    refused = await ada.put(f'{await begin(ada)}/uploads/a', content=b'four')
    assert (refused.status_code, '3' in refused.json()['error']['message']) == (413, True)


async def test_upload_ignored_by_gitignore_is_refused(ada: Client):
    path = await begin(ada)
    await ada.put(f'{path}/uploads/.gitignore', content=b'*.bin\n')

    refused = await ada.put(f'{path}/uploads/a.bin', content=b'x')

    assert (refused.status_code, '.gitignore' in refused.json()['error']['message']) == (409, True)
    assert [each['name'] for each in (await ada.get(f'{path}/uploads')).json()['items']] == ['.gitignore']


async def test_omitted_file_is_reported_over_http_and_to_the_model(serve: Serve, tmp_path: Path):
    """A command creates a file that is too large. Its result names the file, and the version lists it in a field."""
    size = MAX_FILE_BYTES + 1
    model = ScriptedModel(call('execute', command=f'truncate -s {size} big.bin'), then=answer)
    backend = LocalBackend(tmp_path, allow_commands=True)
    agents = {'analyst': create_deep_agent(model)}

    def make_backend(owner: str, id: str) -> LocalBackend:
        return backend

    async with (
        serve(agents, make_backend=make_backend) as served,
        served.client(await served.key()) as ada,
    ):
        path = await begin(ada)
        with pytest.warns(UnversionedFilesWarning, match=r'/big\.bin'):
            run = (await ada.post(f'{path}/turns', json={'prompt': 'go'})).json()
        version = (await ada.get(f'/api/versions/{run["version_id"]}')).json()

    assert 'Not saved in any version: /big.bin (too large).' in run['output']
    assert version['omitted_files'] == [{'path': '/big.bin', 'reason': 'too large', 'size_bytes': size}]


async def test_missing_directory_is_restored_and_a_foreign_one_refused(serve: Serve, tmp_path: Path):
    """A turn and an upload restore the files of the version first. In a directory with other files, both are refused."""
    work = tmp_path / 'work'
    work.mkdir()
    model = ScriptedModel(call('write_file', path='/a.txt', content='one'), then=answer)

    def make_backend(owner: str, id: str) -> LocalBackend:
        return LocalBackend(work)

    async with (
        serve({'analyst': create_deep_agent(model)}, make_backend=make_backend) as served,
        served.client(await served.key()) as ada,
    ):
        path = await begin(ada)
        await ada.post(f'{path}/turns', json={'prompt': 'go'})
        shutil.rmtree(work)
        again = (await ada.post(f'{path}/turns', json={'prompt': 'again'})).json()
        listed = (await ada.get(f'/api/versions/{again["version_id"]}/files')).json()['items']
        filled = [file.name for file in work.iterdir()]
        shutil.rmtree(work)
        uploaded = await ada.put(f'{path}/uploads/u', content=b'u')
        with_upload = sorted(file.name for file in work.iterdir())
        shutil.rmtree(work)
        work.mkdir()
        (work / 'mine.txt').write_text('mine')
        refused = await ada.put(f'{path}/uploads/v', content=b'v')
        failed = (await ada.post(f'{path}/turns', json={'prompt': 'never'})).json()

    assert [each['path'] for each in listed] == ['/a.txt']
    assert (filled, uploaded.status_code, with_upload) == (['a.txt'], 201, ['a.txt', 'uploads'])
    assert (refused.status_code, refused.json()['error']['type']) == (409, 'conflict')
    assert failed['error'] == refused.json()['error']
    assert [file.name for file in work.iterdir()] == ['mine.txt']


async def test_deleted_upload_remains_in_earlier_versions(ada: Client):
    path = await begin(ada)
    kept = (await ada.put(f'{path}/uploads/a/b.txt', content=b'b')).json()['version_id']

    deleted = await ada.delete(f'{path}/uploads/a/b.txt')
    again = await ada.delete(f'{path}/uploads/a/b.txt')

    head = (await ada.get(path)).json()['head']
    assert (deleted.status_code, again.status_code) == (204, 404)
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}
    assert (await ada.get(f'/api/versions/{head}/files')).json()['items'] == []
    assert (await ada.get(f'/api/versions/{kept}/files/uploads/a/b.txt')).content == b'b'


async def test_upload_removed_by_the_agent_can_be_deleted(ada: Client, serve: Serve):
    model = ScriptedModel('never')
    async with serve({'analyst': create_deep_agent(model)}) as served, served.client(await served.key()) as client:
        path = await begin(client)
        await client.put(f'{path}/uploads/a', content=b'a')
        head = await served.state.agents['analyst'].load((await client.get(path)).json()['head'])
        assert await head.remove_upload('a')
        with pytest.raises(UploadNotFoundError, match='no upload'):
            await head.remove_upload('b')
        empty = StateBackend()
        own = DeepAgentDeps(backend=empty)
        await own.upload('a', b'a')
        await empty.remove('/uploads/a')
        await own.remove_upload('a')
        assert own.uploads == {}


@pytest.mark.parametrize('act', ['delete', 'rename'])
async def test_delete_and_rename_are_conflicts_during_approvals_or_head_moves(
    ada: Client, monkeypatch: pytest.MonkeyPatch, act: str
):
    path = await begin(ada, 'careful')
    await ada.put(f'{path}/uploads/a', content=b'a')

    async def do() -> int:
        if act == 'delete':
            return (await ada.delete(f'{path}/uploads/a')).status_code
        return (await ada.patch(path, json={'name': 'New'})).status_code

    async def conflict(*args: object, **options: object) -> None:
        raise VersionConflictError('head', 'yours')

    with monkeypatch.context() as meanwhile:  # simulates a concurrent move of the head
        meanwhile.setattr(AgentVersion, 'remove_upload', conflict)
        meanwhile.setattr(VersionedConversation, 'rename', conflict)
        assert await do() == 409
    await ada.post(f'{path}/turns', json={'prompt': 'ls /'})
    assert await do() == 409
