"""Large tool results are stored in a file. The model gets their head and tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel, Field
from pydantic_ai import Agent, BinaryContent, RunContext, Tool, ToolDefinition, ToolOutput, ToolReturn
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart, ToolKind
from pydantic_ai.workspaces import LocalWorkspaceBackend

from pydantic_deep import DeepAgentDeps, create_deep_agent
from pydantic_deep.extensions import SupportsReadPaths, find_capabilities
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.filesystem._offload import name_of_call, text_of
from pydantic_deep.testing import ScriptedModel, call, deps_for_test
from pydantic_deep_backends import BackendProtocol, BackendUnavailableError, LocalBackend, StateBackend

pytestmark = pytest.mark.anyio

LARGE = ''.join(f'row {number:05}\n' for number in range(10_000))


def dump() -> str:
    return LARGE


async def results(agent: Agent[object, str], model: ScriptedModel) -> Sequence[object]:
    await agent.run('go')
    return [part.content for part in model.requests[-1].tool_returns]


async def test_large_result_is_shortened_and_can_be_paged_and_searched() -> None:
    model = ScriptedModel(
        ToolCallPart('dump', {}, tool_call_id='toolu_01'),
        call('read_file', path='/offload/toolu_01', offset=9_999),
        call('grep', path='/offload', pattern='row 0500.'),
        call('ls', path='/offload'),
        'done',
    )
    agent = Agent(model, tools=[dump], capabilities=[Filesystem(backend=StateBackend())])
    preview, page, found, listed = map(str, await results(agent, model))
    assert preview.startswith(LARGE[:2_000] + '\n[')
    assert preview.endswith(']\n' + LARGE[-1_000:])
    assert preview[2_001:-1_001] == snapshot(
        '[97,000 of 100,000 characters left out. All are in /offload/toolu_01: use read_file or grep on it]'
    )
    assert page == '9999→row 09998\n10000→row 09999'
    assert found.split('\n')[:2] == ['/offload/toolu_01', '5001: row 05000']
    assert listed == 'toolu_01 (100.0 KB)'


async def test_result_at_the_limit_is_not_offloaded() -> None:
    def short() -> str:
        return 'x' * 20_000

    model = ScriptedModel(call('short'), 'done')
    agent = Agent(model, tools=[short], capabilities=[Filesystem(backend=StateBackend())])
    assert await results(agent, model) == ['x' * 20_000]


async def test_page_of_an_offloaded_file_is_not_offloaded_again() -> None:
    model = ScriptedModel(call('dump'), call('read_file', path='/offload/call-1'), 'done')
    filesystem = Filesystem(backend=StateBackend(), offload_chars=3_000)
    agent = Agent(model, tools=[dump], capabilities=[filesystem])
    page = str((await results(agent, model))[1])
    assert page.startswith('1→row 00000\n')
    assert page.split('\n')[-1] == snapshot('[lines 1 to 222 of 10,000; go on with offset 223]')
    assert len(page) < 3_100


async def test_text_of_a_tool_return_is_offloaded_and_metadata_is_preserved() -> None:
    def structured() -> ToolReturn[str]:
        return ToolReturn(LARGE, metadata={'rows': 10_000})

    model = ScriptedModel(call('structured'), 'done')
    agent = Agent(model, tools=[structured], capabilities=[Filesystem(backend=StateBackend())])
    await agent.run('go')
    part = model.requests[-1].tool_returns[0]
    assert 'All are in /offload/call-1' in str(part.content)
    assert part.metadata == {'rows': 10_000}


@dataclass
class Row:
    number: int


class Table(BaseModel):
    rows: list[Row] = Field(serialization_alias='theRows')


ROWS = [Row(number) for number in range(10_000)]


@pytest.mark.parametrize(
    ('result', 'begin', 'end'),
    [
        ([{'number': row.number} for row in ROWS], '[{"number":0},', '{"number":9999}]'),
        ({'rows': ROWS}, '{"rows":[{"number":0},', '{"number":9999}]}'),
        (Table(rows=ROWS), '{"theRows":[{"number":0},', '{"number":9999}]}'),
        (ToolReturn(ROWS), '[{"number":0},', '{"number":9999}]'),
    ],
    ids=['list', 'dict of dataclasses', 'model', 'tool return'],
)
async def test_large_structure_is_offloaded_as_the_json_sent_to_the_model(result: object, begin: str, end: str) -> None:
    def structure() -> object:
        return result

    model = ScriptedModel(call('structure'), call('read_file', path='/offload/call-1', offset='1:1990'), 'done')
    agent = Agent(model, tools=[structure], capabilities=[Filesystem(backend=StateBackend())])
    preview, page = map(str, await results(agent, model))
    assert preview.startswith(begin)
    assert preview.endswith(end)
    assert page.startswith(f'1→{preview[1_989:2_000]}')


async def test_small_results_and_files_are_not_offloaded() -> None:
    image = BinaryContent(b'x' * 60_000, media_type='image/png')

    def small() -> dict[str, int]:
        return {'rows': 1}

    def seen() -> list[str | BinaryContent]:
        return ['x' * 5_000, image]

    def picture() -> BinaryContent:
        return image

    def nothing() -> None:
        return None

    model = ScriptedModel([call('small'), call('seen'), call('picture'), call('nothing')], 'done')
    filesystem = Filesystem(backend=StateBackend())
    agent = Agent(model, tools=[small, seen, picture, nothing], capabilities=[filesystem])
    assert await results(agent, model) == [{'rows': 1}, ['x' * 5_000, image], image, None]


async def test_long_text_beside_images_is_offloaded() -> None:
    """The images follow the shortened text."""
    image = BinaryContent(b'x', media_type='image/png')

    def seen() -> ToolReturn[list[object]]:
        return ToolReturn([LARGE, image, {'rows': [1]}, image])

    model = ScriptedModel(call('seen'), call('read_file', path='/offload/call-1', offset=10_000), 'done')
    agent = Agent(model, tools=[seen], capabilities=[Filesystem(backend=StateBackend())])
    result, page = await results(agent, model)
    text, *images = cast('list[object]', result)
    assert isinstance(text, str)
    assert 'All are in /offload/call-1:' in text
    assert text.endswith('row 09999\n\n{"rows":[1]}')
    assert images == [image, image]
    assert str(page).endswith('{"rows":[1]}')


@pytest.mark.parametrize('count', [3, 10_000])
async def test_what_an_iterator_yields_is_a_result_like_a_list(count: int) -> None:
    def rows() -> object:
        return iter(range(count))

    model = ScriptedModel(call('rows'), 'done')
    agent = Agent(model, tools=[rows], capabilities=[Filesystem(backend=StateBackend())])
    (rows_seen,) = await results(agent, model)
    assert rows_seen == [0, 1, 2] if count == 3 else '/offload/call-1' in str(rows_seen)


async def test_result_of_a_special_tool_kind_is_not_offloaded() -> None:
    def table() -> dict[str, list[Row]]:
        return {'rows': ROWS}

    model = ScriptedModel(call('table'), 'done')
    filesystem = Filesystem(backend=StateBackend())
    agent = Agent(model, tools=[Tool(table, tool_kind=ToolKind('tests', 'table'))], capabilities=[filesystem])
    assert await results(agent, model) == [{'rows': ROWS}]


def test_unserializable_result_is_left_to_pydantic_ai() -> None:
    assert text_of({'a': object()}) is None


async def test_agent_output_is_never_offloaded() -> None:
    model = ScriptedModel(call('final_result', rows=[{'number': row.number} for row in ROWS]))
    agent = Agent(
        model, output_type=ToolOutput(Table, name='final_result'), capabilities=[Filesystem(backend=StateBackend())]
    )
    assert (await agent.run('go')).output.rows == ROWS


async def test_result_is_not_offloaded_if_disabled() -> None:
    model = ScriptedModel(call('dump'), call('ls', path='/offload'), 'done')
    filesystem = Filesystem(backend=StateBackend(), offload_chars=None)
    agent = Agent(model, tools=[dump], capabilities=[filesystem])
    assert await results(agent, model) == [LARGE, '/offload does not exist. Use ls or glob to find it.']


@pytest.mark.parametrize('offload_chars', [20_000, None])
@pytest.mark.parametrize('wrap', [str, ToolReturn], ids=['str', 'tool return'])
async def test_lone_surrogate_in_a_result_is_escaped_in_the_history(
    offload_chars: int | None, wrap: Callable[[str], object]
) -> None:
    def half() -> object:
        return wrap('caf\ud83d é')

    model = ScriptedModel(call('half'), 'done')
    filesystem = Filesystem(backend=StateBackend(), offload_chars=offload_chars)
    result = await Agent(model, tools=[half], capabilities=[filesystem]).run('go')
    assert model.requests[-1].tool_returns[0].content == 'caf\\ud83d é'
    assert b'caf\\\\ud83d' in result.all_messages_json()


def test_limit_below_the_preview_size_is_refused() -> None:
    with pytest.raises(ValueError, match=r'`offload_chars` is 2999\. Use a whole number, at least 3000, or `None`'):
        Filesystem(offload_chars=2_999)


async def test_the_users_directory_stays_clean(tmp_path: Path) -> None:
    model = ScriptedModel(call('dump'), 'done', call('dump'), 'done')
    await Agent(model, tools=[dump], capabilities=[Filesystem(backend=LocalBackend(tmp_path))]).run('go')
    agent = Agent(model, tools=[dump], capabilities=[Filesystem()])
    await agent.run('go', workspace=LocalWorkspaceBackend(tmp_path))
    assert list(tmp_path.iterdir()) == []


async def test_user_files_under_offload_are_preserved() -> None:
    backend = StateBackend({'/offload/mine.txt': 'mine\n'})
    model = ScriptedModel(
        call('dump'),
        call('read_file', path='/offload/mine.txt'),
        call('glob', pattern='**'),
        call('write_file', path='/offload/report.md', content='report\n'),
        call('edit_file', path='/offload/mine.txt', old_string='mine', new_string='ours'),
        call('edit_file', path='/offload/call-1', old_string='row 00000', new_string='x'),
        call('read_file', path='/offload/call-1', limit=1),
        call('ls', path='/offload'),
        'done',
    )
    agent = Agent(model, tools=[dump], capabilities=[Filesystem(backend=backend)])
    contents = list(map(str, (await results(agent, model))[1:]))
    assert contents == snapshot(
        [
            '1→mine',
            '/offload/mine.txt',
            'Created /offload/report.md: 1 line, 7 bytes.',
            'Replaced 1 match at line 1.',
            '/offload/call-1 is the result of a tool, and read-only.',
            """\
1→row 00000
[lines 1 to 1 of 10,000; go on with offset 2]\
""",
            """\
call-1 (100.0 KB)
mine.txt (5 bytes)
report.md (7 bytes)\
""",
        ]
    )
    assert await backend.read_bytes('/offload/mine.txt') == b'ours\n'
    assert await backend.read_bytes('/offload/report.md') == b'report\n'


async def test_offloaded_result_never_hides_a_user_file() -> None:
    backend = StateBackend({'/offload/call-1': 'mine\n'})

    async def change() -> None:
        await backend.write_bytes('/offload/call-1-2', b'mine too\n')

    model = ScriptedModel(
        call('dump'),
        call('read_file', path='/offload/call-1'),
        call('read_file', path='/offload/call-1-2', limit=1),
        call('change'),
        call('read_file', path='/offload/call-1-2'),
        call('write_file', path='/offload/call-1-2', content='ours\n'),
        'done',
    )
    agent = Agent(model, tools=[dump, change], capabilities=[Filesystem(backend=backend)])
    contents = list(map(str, await results(agent, model)))
    assert 'All are in /offload/call-1-2:' in contents[0]
    assert contents[1] == '1→mine'
    assert contents[2].startswith('1→row 00000\n')
    assert contents[4:] == ['1→mine too', 'Replaced /offload/call-1-2: 1 line, 5 bytes.']


@pytest.mark.parametrize('is_user_directory', [False, True])
async def test_write_that_would_hide_a_large_result_is_refused(is_user_directory: bool) -> None:
    backend = StateBackend({'/offload/mine.txt': 'mine\n'} if is_user_directory else {})
    model = ScriptedModel(
        call('dump'),
        call('write_file', path='./offload/call-1', content='mine\n'),
        call('write_file', path='/offload/call-1/mine.txt', content='mine\n'),
        call('write_file', path='/offload', content='mine\n'),
        call('read_file', path='/offload/call-1/mine.txt'),
        'done',
    )
    agent = Agent(model, tools=[dump], capabilities=[Filesystem(backend=backend)])
    before = await backend.snapshot()
    contents = list(map(str, (await results(agent, model))[1:]))
    assert contents == snapshot(
        [
            '/offload/call-1 is the result of a tool, and read-only.',
            '/offload/call-1/mine.txt: it, or a parent of it, is a file and not a directory.',
            '/offload is a directory. Use ls, or name a file.',
            '/offload/call-1/mine.txt: it, or a parent of it, is a file and not a directory.',
        ]
    )
    assert await backend.snapshot() == before


async def test_unavailable_backend_does_not_lose_large_results() -> None:
    class Unavailable(StateBackend):
        async def exists(self, path: str) -> bool:
            raise BackendUnavailableError('The directory is gone.')

    model = ScriptedModel(call('dump'), call('read_file', path='/offload/call-1', limit=1), 'done')
    agent = Agent(model, tools=[dump], capabilities=[Filesystem(backend=Unavailable())])
    assert str((await results(agent, model))[1]).startswith('1→row 00000\n')


async def test_large_result_with_deps_is_available_in_the_next_turn() -> None:
    model = ScriptedModel(call('dump'), 'done', call('read_file', path='/offload/call-1', limit=1), 'done')
    agent = create_deep_agent(model, tools=[dump])
    deps = deps_for_test()
    first = await agent.run('go', deps=deps)
    await agent.run('on', deps=deps, message_history=first.all_messages())
    assert str(model.requests[-1].tool_returns[-1].content).startswith('1→row 00000\n')
    assert await deps.backend.exists('/offload') is False


async def test_runs_without_deps_do_not_share_large_results() -> None:
    model = ScriptedModel(call('dump'), 'done', call('read_file', path='/offload/call-1'), 'done')
    agent = Agent(model, tools=[dump], capabilities=[Filesystem(backend=StateBackend())])
    await agent.run('one')
    await agent.run('two')
    assert model.requests[-1].tool_returns[0].outcome == 'failed'


async def test_deep_agent_without_deps_offloads_too() -> None:
    model = ScriptedModel(call('dump'), call('read_file', path='/offload/call-1', limit=1), 'done')
    await create_deep_agent(model, tools=[dump]).run('go', deps=cast('DeepAgentDeps', None))
    assert str(model.requests[-1].tool_returns[1].content).startswith('1→row 00000\n')


async def test_repeated_call_id_does_not_overwrite_an_earlier_result() -> None:
    def dump_more() -> str:
        return 'more\n' + LARGE

    calls = [ToolCallPart(tool, {}, tool_call_id='same') for tool in ('dump', 'dump_more', 'dump')]
    deps = deps_for_test()
    model = ScriptedModel(calls[0], 'done', calls[1], 'done', calls[2], 'done', call('ls', path='/offload'), 'done')
    agent = create_deep_agent(model, tools=[dump, dump_more])
    for _ in range(4):
        await agent.run('go', deps=deps)
    assert model.requests[-1].tool_returns[0].content == 'same (100.0 KB)\nsame-2 (100.0 KB)'


@pytest.mark.parametrize(
    ('tool_call_id', 'name'),
    [
        ('call_aZ-9', 'call_aZ-9'),
        ('../../etc/passwd', '______etc_passwd'),
        ('a\0b\n', 'a_b_'),
        ('', '_'),
        ('x' * 500, 'x' * 100),
    ],
)
def test_any_call_id_makes_a_safe_file_name(tool_call_id: str, name: str) -> None:
    assert name_of_call(tool_call_id) == name


LS = call('ls', path='/offload')
GLOB = call('glob', pattern='**', path='/offload')
GREP = call('grep', pattern='row 0000[78]', path='/offload')


class ReadPaths(AbstractCapability[object]):
    """Records the paths that each call reads."""

    def __init__(self) -> None:
        self.seen: list[Sequence[str] | None] = []

    async def before_tool_execute(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
    ) -> Any:
        [reader] = find_capabilities(ctx, SupportsReadPaths)
        self.seen.append(await reader.read_paths(ctx, tool_def=tool_def, args=args))
        return args


async def results_after(
    backend: BackendProtocol, *calls: ToolCallPart, file: str = '/offload/mine.txt', paths: ReadPaths | None = None
) -> list[str]:
    """Store a large result as `/offload/call-1`, then write a file of the user, and return the results of calls."""

    async def change() -> None:
        await backend.write_bytes(file, b'row 00007\n')

    model = ScriptedModel(call('dump'), call('change'), *calls, 'done')
    capabilities = [Filesystem(backend=backend), paths or ReadPaths()]
    await Agent(model, tools=[dump, change], capabilities=capabilities).run('go')
    return [str(part.content) for part in model.requests[-1].tool_returns[2:]]


@pytest.mark.parametrize('is_local', [False, True], ids=['state', 'local'])
async def test_directory_has_large_results_and_files(tmp_path: Path, is_local: bool) -> None:
    backend = LocalBackend(tmp_path) if is_local else StateBackend()
    await backend.write_bytes('/offload/more/mine.txt', b'row 00008\n')
    assert await results_after(backend, LS, GLOB, GREP) == snapshot(
        [
            """\
call-1 (100.0 KB)
mine.txt (10 bytes)
more/\
""",
            """\
/offload/call-1
/offload/mine.txt
/offload/more/mine.txt\
""",
            """\
/offload/call-1
8: row 00007
9: row 00008
/offload/mine.txt
1: row 00007
/offload/more/mine.txt
1: row 00008\
""",
        ]
    )


async def test_search_reads_the_results_and_the_targets_of_links(tmp_path: Path) -> None:
    """A link does not move the results, so `UntrustedContent` never takes them for files of the project."""
    (tmp_path / 'data').mkdir()
    (tmp_path / 'offload').symlink_to('data')
    paths = ReadPaths()
    await results_after(LocalBackend(tmp_path), GREP, paths=paths)
    assert paths.seen[-1] == ['/data', '/offload/call-1', '/data/mine.txt']


async def test_file_of_the_same_path_hides_a_large_result() -> None:
    assert await results_after(StateBackend(), LS, GREP, file='/offload/call-1') == snapshot(
        [
            'call-1 (10 bytes)',
            """\
/offload/call-1
1: row 00007\
""",
        ]
    )


async def test_broken_link_of_the_same_path_does_not_hide_a_large_result(tmp_path: Path) -> None:
    (tmp_path / 'offload').mkdir()
    (tmp_path / 'offload' / 'call-1').symlink_to('nowhere')
    assert (await results_after(LocalBackend(tmp_path), LS))[0].startswith('call-1 (100.0 KB)\n')


async def test_file_in_place_of_the_directory_hides_the_large_results() -> None:
    assert await results_after(StateBackend(), LS, GREP, file='/offload') == snapshot(
        ['/offload: it, or a parent of it, is a file and not a directory.', '/offload\n1: row 00007']
    )


@pytest.mark.parametrize('files', [{}, {'/offload/mine.txt': 'mine\n'}])
async def test_error_of_a_missing_file_names_large_results(files: dict[str, bytes | str]) -> None:
    model = ScriptedModel(
        call('dump'), call('read_file', path='/offload/call-7'), call('read_file', path='/offload/xyz'), 'done'
    )
    agent = Agent(model, tools=[dump], capabilities=[Filesystem(backend=StateBackend(files))])
    similar, other = (await results(agent, model))[1:]
    assert similar == '/offload/call-7 does not exist. Similar: /offload/call-1'
    assert other == f'/offload/xyz does not exist. /offload has call-1{", mine.txt" if files else ""}.'
