"""Previews of calls for a person, requested by another capability during a run."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from pydantic_ai import Agent, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import Tool
from pydantic_ai.toolsets import AbstractToolset

from pydantic_deep.approvals import Preview, view_diff
from pydantic_deep.extensions import SupportsHiddenTools, SupportsPreview, find_capabilities
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.testing import ScriptedModel
from pydantic_deep_backends import BackendProtocol, CommandResult, LocalBackend, OverlayBackend, StateBackend, digest_of

pytestmark = pytest.mark.anyio


@dataclass(kw_only=True)
class Asking(AbstractCapability[object]):
    """Requests a preview of each call before it runs."""

    seen: list[Preview | None] = field(default_factory=list[Preview | None])
    hidden: list[frozenset[str]] = field(default_factory=list[frozenset[str]])

    async def before_tool_execute(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
    ) -> Any:
        [filesystem] = find_capabilities(ctx, SupportsPreview)
        [names] = find_capabilities(ctx, SupportsHiddenTools)
        self.seen.append(await filesystem.preview(ctx, call=call, tool_def=tool_def, args=dict(args)))
        self.hidden.append(await names.hidden_tool_names(ctx))
        return args


@pytest.fixture
def preview() -> Callable[..., Awaitable[list[Preview | None]]]:
    """Run calls one after the other, and return their previews."""

    async def run(
        filesystem: BackendProtocol | Filesystem, *calls: ToolCallPart, tools: Any = ()
    ) -> list[Preview | None]:
        asking = Asking()
        files = filesystem if isinstance(filesystem, Filesystem) else Filesystem(backend=filesystem)
        agent = Agent(ScriptedModel(*calls, 'done'), capabilities=[files, asking], tools=tools)
        await agent.run('go')
        return asking.seen

    return run


Ask = Callable[..., Awaitable[list[Preview]]]


def call(name: str, **args: object) -> ToolCallPart:
    return ToolCallPart(name, args)


async def test_new_file_is_previewed_completely(preview: Ask) -> None:
    [found] = await preview(StateBackend(), call('write_file', path='d/new.txt', content='one\ntwo'))
    assert found == Preview(
        kind='diff',
        diff=view_diff('/d/new.txt', None, 'one\ntwo'),
        files={'/d/new.txt': None},
        binds=True,
    )
    assert str(found) == '--- /dev/null\n+++ b/d/new.txt\n@@ -0,0 +1,2 @@\n+one\n+two\n\\ No newline at end of file'


async def test_write_is_previewed_as_a_diff_in_the_file_encoding(preview: Ask) -> None:
    before = '\ufeffone\r\ntwo\r\n'.encode()
    backend = StateBackend({'/a': before})
    [found] = await preview(backend, call('write_file', path='/a', content='one\nTWO\n'))
    assert found == Preview(
        kind='diff',
        diff=view_diff('/a', 'one\r\ntwo\r\n', 'one\r\nTWO\r\n'),
        files={'/a': digest_of(before)},
        binds=True,
    )
    assert str(found) == '--- a/a\n+++ b/a\n@@ -1,2 +1,2 @@\n one\\r\n-two\\r\n+TWO\\r'
    assert await backend.read_bytes('/a') == '\ufeffone\r\nTWO\r\n'.encode()


async def test_edit_is_previewed_as_a_nonbinding_diff(preview: Ask) -> None:
    backend = StateBackend({'/a': 'one\ntwo\nthree\n'})
    [found] = await preview(backend, call('edit_file', path='a', old_string='two', new_string='2'))
    assert found == Preview(
        kind='diff',
        diff=view_diff('/a', 'one\ntwo\nthree\n', 'one\n2\nthree\n'),
        files={'/a': digest_of(b'one\ntwo\nthree\n')},
    )


async def test_replace_all_shows_every_match(preview: Ask) -> None:
    backend = StateBackend({'/a': 'x\ny\nx\n'})
    [found] = await preview(backend, call('edit_file', path='a', old_string='x', new_string='z', replace_all=True))
    assert (str(found).count('+z'), found.binds) == (2, True)


async def test_undecodable_bytes_are_shown_like_to_the_model(preview: Ask) -> None:
    backend = StateBackend({'/a': 'äöü\n'.encode() + b'\xff\nold\n'})
    [found] = await preview(backend, call('edit_file', path='a', old_string='old', new_string='new'))
    assert str(found) == '--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n äöü\n \ufffd\n-old\n+new'


@pytest.mark.parametrize(
    ('args', 'reason'),
    [
        ({'path': '/a', 'old_string': 'none', 'new_string': 'x'}, 'old_string is not in /a.'),
        ({'path': '/a', 'old_string': 'o', 'new_string': 'x'}, 'old_string is in /a 2 times, at line 1, 2. '),
        ({'path': '/a', 'old_string': '', 'new_string': 'x'}, 'old_string is empty.'),
        ({'path': '/bin', 'old_string': 'a', 'new_string': 'x'}, '/bin is not text: binary data.'),
        (
            {'path': '/none', 'old_string': 'a', 'new_string': 'x'},
            '/none does not exist. / has a, bin, d/. Create it with write_file, or name another.',
        ),
        ({'path': '/aa', 'old_string': 'a', 'new_string': 'x'}, '/aa does not exist. Similar: /a'),
        ({'path': '/d', 'old_string': 'a', 'new_string': 'x'}, '/d is a directory.'),
        ({'path': '../x', 'old_string': 'a', 'new_string': 'x'}, "'/../x' is not a valid path"),
    ],
)
async def test_failing_edit_is_previewed_in_one_line(preview: Ask, args: dict[str, str], reason: str) -> None:
    backend = StateBackend({'/a': 'one\ntwo\n', '/bin': b'\0', '/d/f': ''})
    before = await backend.snapshot()
    [found] = await preview(backend, call('edit_file', **args))
    assert found.kind == 'diff'
    assert found.text.startswith(f'This would fail and change nothing: {reason}'.replace('at line 1', 'at lines 1'))
    assert ('\n' in found.text, found.binds) == (False, True)
    assert await backend.snapshot() == before


async def test_failing_write_is_previewed(preview: Ask) -> None:
    backend = StateBackend({'/a': 'one', '/d/f': ''})
    directory, below = await preview(
        backend, call('write_file', path='/d', content='x'), call('write_file', path='/a/b', content='x')
    )
    assert directory.text == 'This would fail and change nothing: /d is a directory. Use ls, or name a file.'
    assert below.text.startswith('This would fail and change nothing: /a/b: it, or a parent of it, is a file')


async def test_change_of_a_large_result_is_previewed_as_refused(preview: Ask) -> None:
    def dump() -> str:
        return 'x' * 30_000

    calls = [
        ToolCallPart('dump', {}, tool_call_id='long'),
        call('write_file', path='/offload/long', content='y'),
        call('edit_file', path='/offload/long', old_string='x', new_string='y'),
    ]
    found = await preview(StateBackend(), *calls, tools=[dump])
    refused = 'This would fail and change nothing: /offload/long is the result of a tool, and read-only.'
    assert [str(shown) for shown in found[1:]] == [refused, refused]


async def test_write_to_a_changed_file_is_previewed_as_refused(preview: Ask) -> None:
    class Changing(StateBackend):
        reads = 0

        async def read_bytes(self, path: str) -> bytes:
            self.reads += 1
            return b'%d' % self.reads

    _, found = await preview(
        Changing({'/a': ''}), call('read_file', path='/a'), call('write_file', path='/a', content='x')
    )
    assert 'changed since you read it' in found.text


async def test_binary_file_is_previewed_as_replaced(preview: Ask) -> None:
    backend = StateBackend({'/a.bin': b'\0' * 10})
    [found] = await preview(backend, call('write_file', path='/a.bin', content='x\n'))
    assert (
        str(found) == 'All of /a.bin is replaced: binary data, 10 bytes.\n--- a/a.bin\n+++ b/a.bin\n@@ -0,0 +1 @@\n+x'
    )


async def test_change_of_encoding_is_previewed(preview: Ask) -> None:
    backend = StateBackend({'/a': 'déjà vu, garçon, là-bas\n'.encode('cp1252')})
    [found] = await preview(backend, call('write_file', path='/a', content='日本\n'))
    assert str(found).startswith('The encoding changes from cp1252 to utf-8.\n--- a/a\n')


async def test_write_of_identical_contents_is_previewed_as_no_change(preview: Ask) -> None:
    found = await preview(
        StateBackend({'/a': 'x', '/e': ''}),
        call('write_file', path='/a', content='x'),
        call('write_file', path='/e', content='y'),
    )
    assert str(found[0]) == 'No change: /a already has these contents.'
    assert str(found[1]) == '--- a/e\n+++ b/e\n@@ -0,0 +1 @@\n+y\n\\ No newline at end of file'


async def test_previewed_paths_are_resolved_and_searches_have_none(preview: Ask, tmp_path: Path) -> None:
    (tmp_path / 'secret').mkdir()
    (tmp_path / 'secret/key').write_text('old\n')
    (tmp_path / 'link').symlink_to('secret')
    (tmp_path / 'out').symlink_to('/etc')
    backend = LocalBackend(tmp_path)
    found = await preview(
        OverlayBackend(backend),
        call('edit_file', path='link/key', old_string='old', new_string='new'),
        call('read_file', path='link/../link/key'),
        call('read_file', path='link/key'),
        call('ls', path='link'),
        call('glob', pattern='*', path='link'),
        call('grep', pattern='x'),
        call('write_file', path='out/x', content=''),
    )
    assert list(found[0].files) == ['/secret/key']
    assert str(found[0]).startswith('--- a/secret/key\n')
    assert found[1:6] == [
        *[Preview(kind='call', files={'/secret/key': None})] * 2,
        *[Preview(kind='call')] * 3,
    ]
    assert 'leads outside of the root' in found[6].text
    assert found[6].files == {}


class Shell(StateBackend):
    async def run(self, command: Any, *, shell: bool = False, env: Any = None, timeout: Any = None) -> CommandResult:
        return CommandResult(exit_code=0, stdout='', stderr='')


async def test_command_is_shown_exactly(preview: Ask) -> None:
    command = 'rm -rf  "$HOME" \\\n  && echo é'
    [found] = await preview(Shell(), call('execute', command=command))
    assert found == Preview(kind='command', text=command)


async def test_an_unreachable_backend_becomes_a_diagnostic(preview: Ask) -> None:
    class Broken(StateBackend):
        async def read_bytes(self, path: str) -> bytes:
            raise ConnectionError(111, 'Connection refused', path)

    [found] = await preview(Broken({'/a': ''}), call('write_file', path='/a', content=''))
    assert found.text == 'This would fail and change nothing: /a: Connection refused.'


async def test_foreign_tools_have_no_preview(preview: Ask) -> None:
    def write_elsewhere(path: str, content: str) -> str:
        return path + content

    found = await preview(
        StateBackend(), call('write_file', path='a', content=''), tools=[Tool(write_elsewhere, name='w')]
    )
    assert len(found) == 1
    assert await preview(StateBackend(), call('w', path='a', content=''), tools=[Tool(write_elsewhere, name='w')]) == [
        None
    ]


async def test_renamed_tool_has_a_preview(preview: Ask) -> None:
    class Renamed(Filesystem):
        def get_toolset(self) -> AbstractToolset[object]:
            toolset = cast('AbstractToolset[object]', super().get_toolset())
            return toolset.renamed({'ls': 'write_file', 'write_file': 'ls'}).prefixed('fs')

    [found] = await preview(Renamed(backend=StateBackend()), call('fs_ls', path='/a', content='x\n'))
    assert str(found) == '--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+x'


async def test_tool_with_changed_parameters_is_identified_by_its_name(preview: Ask) -> None:
    filesystem = Filesystem(backend=StateBackend({'/a': 'x'}))
    asking: list[Preview | None] = []

    class Other(Asking):
        async def before_tool_execute(
            self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
        ) -> Any:
            [files] = find_capabilities(ctx, SupportsPreview)
            for name in ('write_file', 'unknown'):
                changed = ToolDefinition(name=name, toolset_id='filesystem')
                for given in ({}, {'path': 1, 'content': 'x'}, {'path': '/a'}, {'path': '/b', 'content': ''}):
                    asking.append(await files.preview(ctx, call=call, tool_def=changed, args=dict(given)))
            return args

    agent = Agent(ScriptedModel(call('ls'), 'done'), capabilities=[filesystem, Other()])
    await agent.run('go')
    assert [found and str(found) for found in asking] == [
        'This would fail and change nothing: path is missing or not a string.',
        'This would fail and change nothing: path is missing or not a string.',
        'This would fail and change nothing: content is missing or not a string.',
        '--- /dev/null\n+++ b/b',
        *[None] * 4,
    ]


@pytest.mark.parametrize(('backend', 'hidden'), [(StateBackend(), {'execute'}), (Shell(), set[str]())])
async def test_tools_unsupported_by_the_backend_are_hidden(backend: StateBackend, hidden: set[str]) -> None:
    asking = Asking()
    agent = Agent(ScriptedModel(call('ls'), 'done'), capabilities=[Filesystem(backend=backend), asking])
    await agent.run('go')
    assert asking.hidden == [hidden]
