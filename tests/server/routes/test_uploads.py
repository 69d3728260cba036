"""Uploads over HTTP: raw bytes, kept at once, and found by the next turn, in this process or another."""

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
from pydantic_deep.server._settings import InvalidSettingsError, ServerSettings, load_settings
from pydantic_deep.store import VersionConflictError
from pydantic_deep.testing import Answer, ScriptedModel, call
from pydantic_deep.versions import AgentVersion, ProtectedFilesWarning, UnversionedFilesWarning, VersionedConversation
from pydantic_deep_backends import _scan_budget
from tests.server.conftest import Client, Gate, MakeClient, Serve

pytestmark = pytest.mark.anyio


def answer(messages: list[ModelMessage], info: AgentInfo) -> Answer:
    """Call the tool that the user names, and say what it returned."""
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


async def test_an_upload_is_found_by_the_next_turn(ada: Client):
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


async def test_an_upload_of_the_same_name_replaces_the_one_before(ada: Client):
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'one')

    same = await ada.put(f'{path}/uploads/a', content=b'one')
    other = await ada.put(f'{path}/uploads/a', content=b'other')

    assert (same.status_code, other.status_code) == (201, 201)
    assert (same.json()['upload']['size_bytes'], other.json()['upload']['size_bytes']) == (3, 5)
    assert [each['size_bytes'] for each in (await ada.get(f'{path}/uploads')).json()['items']] == [5]
    version = other.json()['version_id']
    assert (await ada.get(f'/api/versions/{version}/files/uploads/a')).content == b'other'


async def test_names_that_leave_the_uploads_are_refused(ada: Client):
    path = await begin(ada)

    for name in ('..%2fa', 'a/..%2f..%2f..%2fb', '%2fetc/passwd', '%00'):
        refused = await ada.put(f'{path}/uploads/{name}', content=b'x')
        assert refused.status_code in {404, 422}, name
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}


async def test_uploads_that_are_too_large_are_refused_before_they_come(serve: Serve, settings: ServerSettings):
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


async def test_nothing_is_uploaded_while_a_run_works_or_something_waits(ada: Client, gate: Gate):
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


async def test_a_conversation_that_moves_on_meanwhile_takes_no_upload(ada: Client):
    path = await begin(ada)

    async def slowly() -> AsyncGenerator[bytes]:
        yield b'one'
        await ada.post(f'{path}/turns', json={'prompt': 'ls /'})
        yield b'two'

    assert (await ada.put(f'{path}/uploads/a', content=slowly())).status_code == 409
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}


async def test_a_version_lists_the_protected_files_that_its_turn_changed(serve: Serve, tmp_path: Path):
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
    """Return what gives all conversations one directory."""

    def open_files(owner: str, id: str) -> LocalBackend:
        return LocalBackend(root)

    return open_files


@pytest.mark.parametrize('api', ['ours', 'branch'])
async def test_a_turn_into_another_directory_with_other_files_is_refused_before_a_run_is_made(
    serve: Serve, tmp_path: Path, api: str
):
    """409 with what to do, and no run and no change; emptied, the directory is given the files of the version."""
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


async def test_where_it_cannot_be_known_before_the_run_of_the_turn_says_so(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Somebody may replace the directory between the check and the run, as here by a check that sees nothing."""
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


async def test_a_version_lists_the_protected_files_that_its_turn_brought_into_a_new_directory(
    serve: Serve, tmp_path: Path
):
    """A version may hold files that programs of the host obey: whoever looks is told that they are there now."""
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


async def test_files_of_a_conversation_can_be_a_directory_of_the_application(serve: Serve, tmp_path: Path):
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


async def test_a_directory_with_too_many_files_is_an_error_with_the_number(
    serve: Serve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A turn fails with the sentence, an upload is a conflict with it, and neither leaves anything behind."""

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


async def test_uploads_of_others_are_not_there(ada: Client, make_client: MakeClient):
    """004-09"""
    path = await begin(ada)
    await ada.put(f'{path}/uploads/a', content=b'x')
    bob = await make_client('run', owner='bob')

    assert (await bob.get(f'{path}/uploads')).status_code == 404
    assert (await bob.put(f'{path}/uploads/a', content=b'y')).status_code == 404


async def test_an_agent_without_our_deps_holds_no_uploads(serve: Serve):
    async with (
        serve({'plain': Agent(ScriptedModel('Hi.'))}) as served,
        served.client(await served.key('run')) as client,
    ):
        conversation = (await client.post('/api/conversations', json={'agent': 'plain'})).json()['id']
        refused = await client.put(f'/api/conversations/{conversation}/uploads/a.txt', content=b'a')

    assert refused.status_code == 409
    assert refused.json()['error']['type'] == 'conflict'


async def test_one_number_decides_how_large_an_upload_may_be(ada: Client):
    """What is answered with 201 is in the version, up to the largest file; above it the answer is 413 with the number."""
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


async def test_an_agent_that_takes_less_refuses_with_its_number(ada: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(deps, 'MAX_FILE_BYTES', 3)  # the layer that counts bodies has the real number
    refused = await ada.put(f'{await begin(ada)}/uploads/a', content=b'four')
    assert (refused.status_code, '3' in refused.json()['error']['message']) == (413, True)


async def test_an_upload_that_would_be_in_no_version_is_refused(ada: Client):
    path = await begin(ada)
    await ada.put(f'{path}/uploads/.gitignore', content=b'*.bin\n')

    refused = await ada.put(f'{path}/uploads/a.bin', content=b'x')

    assert (refused.status_code, '.gitignore' in refused.json()['error']['message']) == (409, True)
    assert [each['name'] for each in (await ada.get(f'{path}/uploads')).json()['items']] == ['.gitignore']


async def test_a_file_that_is_in_no_version_is_told_over_http_and_to_the_model(serve: Serve, tmp_path: Path):
    """A command leaves a file that is too large: its result says so, and the version has it in a field."""
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


async def test_the_directory_of_a_conversation_on_another_machine_is_filled_or_left_alone(serve: Serve, tmp_path: Path):
    """A turn and an upload begin with the files of the version; where there are others, both are refused."""
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


async def test_an_upload_is_deleted_from_the_next_version_and_stays_in_those_before(ada: Client):
    path = await begin(ada)
    kept = (await ada.put(f'{path}/uploads/a/b.txt', content=b'b')).json()['version_id']

    deleted = await ada.delete(f'{path}/uploads/a/b.txt')
    again = await ada.delete(f'{path}/uploads/a/b.txt')

    head = (await ada.get(path)).json()['head']
    assert (deleted.status_code, again.status_code) == (204, 404)
    assert (await ada.get(f'{path}/uploads')).json() == {'items': []}
    assert (await ada.get(f'/api/versions/{head}/files')).json()['items'] == []
    assert (await ada.get(f'/api/versions/{kept}/files/uploads/a/b.txt')).content == b'b'


async def test_an_upload_that_the_agent_has_removed_can_be_deleted(ada: Client, serve: Serve):
    model = ScriptedModel('never')
    async with serve({'analyst': create_deep_agent(model)}) as served, served.client(await served.key()) as client:
        path = await begin(client)
        await client.put(f'{path}/uploads/a', content=b'a')
        head = await served.state.agents['analyst'].load((await client.get(path)).json()['head'])
        assert await head.remove_upload('a')
        with pytest.raises(UploadNotFoundError, match='no upload'):
            await head.remove_upload('b')
        gone = StateBackend()
        own = DeepAgentDeps(backend=gone)
        await own.upload('a', b'a')
        await gone.remove('/uploads/a')
        await own.remove_upload('a')
        assert own.uploads == {}


@pytest.mark.parametrize('act', ['delete', 'rename'])
async def test_nothing_is_deleted_or_renamed_while_something_waits_or_another_was_faster(
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

    with monkeypatch.context() as meanwhile:  # somebody moves the head in between
        meanwhile.setattr(AgentVersion, 'remove_upload', conflict)
        meanwhile.setattr(VersionedConversation, 'rename', conflict)
        assert await do() == 409
    await ada.post(f'{path}/turns', json={'prompt': 'ls /'})
    assert await do() == 409
