"""Tests of `SupportsCommands`."""

from __future__ import annotations

import math
import posixpath
import re
from functools import partial
from typing import Final, cast

import anyio
import pytest

from pydantic_deep_backends.errors import CommandTimeoutError
from pydantic_deep_backends.protocol import BackendProtocol, Command, CommandResult, SandboxProtocol, SupportsIdentity

from ._base import WRITERS, BackendRules, Seed

_BEATS: Final = """
beat() { while :; do echo beat >> "$BEATS/$1"; sleep 0.02; done; }
beat child & (beat orphan & ) & export BEATS
setsid sh -c 'while :; do echo beat >> "$BEATS/session"; sleep 0.02; done' >/dev/null 2>&1 </dev/null &
until [ -s "$BEATS/child" ] && [ -s "$BEATS/orphan" ] && [ -s "$BEATS/session" ]; do sleep 0.01; done
"""
"""Starts processes that write forever: a child, an orphan, and one in its own session without our pipes."""


_BEATING: Final = 3
"""Number of processes that `_BEATS` starts."""


class CommandRules(BackendRules):
    """Tests of commands."""

    async def test_directory_is_recognized_after_its_files_change(
        self, identified: SupportsIdentity, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        await seed(posixpath.join(root, 'a.txt'), b'one')
        identity = await identified.identity()
        assert identity is not None
        for name, data in (('a.txt', b'two'), ('deep/er/b.txt', b'b')):
            await seed(posixpath.join(root, name), data)
        assert await identified.has_identity(identity) is not False
        assert await identified.has_identity(await identified.identity() or '') is not False

    @pytest.mark.parametrize('foreign', ['', 'null', '[]', '{}', '7', 'of another backend'])
    async def test_foreign_identity_is_not_recognized(self, identified: SupportsIdentity, foreign: str) -> None:
        assert await identified.has_identity(foreign) is not True

    async def test_make_root_does_not_change_an_existing_directory(
        self, identified: SupportsIdentity, writable: BackendProtocol, root: str
    ) -> None:
        await writable.write_bytes(posixpath.join(root, 'a.txt'), b'one')
        identity = await identified.identity()
        await identified.make_root()
        assert await identified.has_identity(identity or '') is not False
        assert await writable.read_bytes(posixpath.join(root, 'a.txt')) == b'one'

    async def test_command_of_the_wrong_type_is_refused(self, sandbox: SandboxProtocol) -> None:
        for command, shell in (('true', False), (['true'], True), ([b'true'], False), ([1], False)):
            with pytest.raises(TypeError):
                await sandbox.run(cast('Command', command), shell=shell)

    @pytest.mark.parametrize('command', [[], [''], ['echo', 'a\0b']], ids=ascii)
    async def test_invalid_command_is_refused(self, sandbox: SandboxProtocol, command: list[str]) -> None:
        with pytest.raises(ValueError, match=r'command has no program|has a NUL'):
            await sandbox.run(command)

    @pytest.mark.parametrize('timeout', [0, -1, math.inf, math.nan])
    async def test_timeout_must_be_positive_and_finite(self, sandbox: SandboxProtocol, timeout: float) -> None:
        with pytest.raises(ValueError, match='positive, finite'):
            await sandbox.run(['true'], timeout=timeout)

    @pytest.mark.parametrize('env', [{'': 'a'}, {'A=B': 'a'}, {'A\0': 'a'}, {'A': 'a\0'}], ids=ascii)
    async def test_invalid_variable_is_refused(self, sandbox: SandboxProtocol, env: dict[str, str]) -> None:
        with pytest.raises(ValueError, match='cannot be set'):
            await sandbox.run(['true'], env=env)

    async def test_commands_start_in_the_working_directory(self, sandbox: SandboxProtocol) -> None:
        assert (await sandbox.run(['pwd', '-P'])).stdout == f'{await sandbox.working_dir()}\n'

    async def test_standard_input_is_empty(self, sandbox: SandboxProtocol) -> None:
        assert await sandbox.run(['cat'], timeout=60) == CommandResult(exit_code=0, stdout='', stderr='')

    @pytest.mark.parametrize(
        ('command', 'exit_code'),
        [
            (['true'], 0),
            (['sh', '-c', 'exit 7'], 7),
            (['sh', '-c', 'exit 137'], 137),
            (['sh', '-c', 'exit 255'], 255),
            (['sh', '-c', 'kill -KILL $$'], -9),
            (['sh', '-c', 'kill -TERM $$'], -15),
            (['sh', '-c', 'kill -PIPE $$'], -13),
            (['pydantic-deep-no-such-program'], 127),
            (['/pydantic-deep/no-such-program'], 127),
            (['/usr'], 126),
        ],
        ids=ascii,
    )
    async def test_exit_code_is_that_of_the_process(
        self, sandbox: SandboxProtocol, command: list[str], exit_code: int
    ) -> None:
        result = await sandbox.run(command)
        assert (result.exit_code, result.stdout) == (exit_code, '')
        assert (result.stderr != '') == (exit_code in (126, 127))

    async def test_arguments_are_literal(self, sandbox: SandboxProtocol) -> None:
        arguments = [' a  b ', '', '$(id) `id`; && ${PATH}', '*', '-n', '--', 'naïve\n日本語']
        result = await sandbox.run(['sh', '-c', 'for a; do printf "<%s>" "$a"; done', 'sh', *arguments])
        assert result.stdout == ''.join(f'<{argument}>' for argument in arguments)

    async def test_shell_interprets_a_string(self, sandbox: SandboxProtocol) -> None:
        result = await sandbox.run('printf out; printf err >&2; false || exit 3', shell=True)
        assert result == CommandResult(exit_code=3, stdout='out', stderr='err')

    async def test_undecodable_output_is_replaced(self, sandbox: SandboxProtocol) -> None:
        result = await sandbox.run("printf 'a\\377b'; printf '\\303' >&2", shell=True)
        assert (result.stdout, result.stderr) == ('a\ufffdb', '\ufffd')

    async def test_output_is_complete(self, sandbox: SandboxProtocol) -> None:
        script = 'i=0; while [ $i -lt 2000 ]; do echo "out $i"; echo "err $i" >&2; i=$((i+1)); done'
        result = await sandbox.run(script, shell=True)
        assert result.stdout.splitlines() == [f'out {number}' for number in range(2000)]
        assert result.stderr.splitlines() == [f'err {number}' for number in range(2000)]

    async def test_middle_of_long_output_is_omitted_and_the_command_succeeds(self, sandbox: SandboxProtocol) -> None:
        script = 'echo begin; head -c 50000000 /dev/zero | tr "\\0" a; echo; echo end; exit 5'
        result = await sandbox.run(script, shell=True)
        assert result.exit_code == 5
        assert result.stdout.startswith('begin\naaaa')
        assert result.stdout.endswith('aaaa\nend\n')
        notice = re.search(r'\n\[… ([0-9,]+) bytes left out …]\n', result.stdout)
        assert notice is not None
        kept = len(result.stdout) - len(notice[0])
        assert kept + int(notice[1].replace(',', '')) == len('begin\n\nend\n') + 50_000_000
        assert kept < 5_000_000

    async def test_variables_are_added_and_others_are_not_inherited(
        self, sandbox: SandboxProtocol, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('PYDANTIC_DEEP_SECRET', 'canary')
        result = await sandbox.run(['env'], env={'ADDED': 'a=b c', 'PATH': '/usr/bin:/bin'})
        lines = result.stdout.splitlines()
        assert 'ADDED=a=b c' in lines
        assert 'PATH=/usr/bin:/bin' in lines
        assert 'canary' not in result.stdout

    async def test_commands_and_file_operations_share_files(self, sandbox: SandboxProtocol, root: str) -> None:
        path = f'{root}/d/file'
        await sandbox.write_bytes(path, b'from a file operation\n')
        script = 'cat "$1"; echo from a command > "$1"; echo new > "$1.new"; mkdir "$1.d"; : > "$1.d/x"'
        result = await sandbox.run(['sh', '-c', script, 'sh', path])
        assert result == CommandResult(exit_code=0, stdout='from a file operation\n', stderr='')
        assert await sandbox.read_bytes(path) == b'from a command\n'
        await sandbox.write_bytes(f'{path}.new', b'and back')
        assert (await sandbox.run(['cat', f'{path}.new'])).stdout == 'and back'
        await sandbox.remove(f'{path}.d')
        assert [entry.name for entry in await sandbox.list_dir(f'{root}/d')] == ['file', 'file.new']
        assert (await sandbox.run(['rm', '-r', root])).exit_code == 0
        assert not await sandbox.exists(root)

    async def test_links_created_by_a_command_do_not_lead_file_operations_outside(
        self, sandbox: SandboxProtocol, root: str
    ) -> None:
        await sandbox.make_dir(root)
        script = 'cd "$1"; ln -s /etc/passwd file; ln -s / top; ln -s "$1" self; echo x > inside; ln -s inside near'
        assert (await sandbox.run(['sh', '-c', script, 'sh', root])).exit_code == 0
        for path in ('file', 'top/etc/passwd'):
            with pytest.raises((PermissionError, FileNotFoundError)):
                await sandbox.read_bytes(f'{root}/{path}')
            with pytest.raises((PermissionError, FileNotFoundError)):
                await sandbox.write_bytes(f'{root}/{path}', b'')
        assert await sandbox.read_bytes(f'{root}/self/near') == b'x\n'
        await sandbox.remove(f'{root}/top')
        assert await sandbox.exists('/')

    async def test_commands_run_concurrently(self, sandbox: SandboxProtocol) -> None:
        results: dict[int, CommandResult] = {}

        async def run(number: int) -> None:
            results[number] = await sandbox.run(f'echo {number}; exit {number}', shell=True)

        async with anyio.create_task_group() as group:
            for number in range(WRITERS):
                group.start_soon(run, number)
        assert results == {
            number: CommandResult(exit_code=number, stdout=f'{number}\n', stderr='') for number in range(WRITERS)
        }

    async def test_processes_end_with_their_command(self, sandbox: SandboxProtocol, root: str) -> None:
        await sandbox.make_dir(root)
        result = await sandbox.run(_BEATS + 'echo done', shell=True, env={'BEATS': root})
        assert (result.exit_code, result.stdout) == (0, 'done\n')
        await _assert_beats_stopped(sandbox, root)

    async def test_all_processes_of_a_command_end_at_its_timeout(self, sandbox: SandboxProtocol, root: str) -> None:
        await sandbox.make_dir(root)
        script = f'echo out; echo err >&2; {_BEATS} sleep 600'
        seconds, printed = 0.25, ('', '')
        # The progress within half a second depends on the machine, so a busy one gets more time.
        while len(await _found_beats(sandbox, root)) < _BEATING and seconds < 60:
            seconds *= 2
            with pytest.raises(CommandTimeoutError, match=f'took longer than {seconds:g} seconds') as caught:
                await sandbox.run(script, shell=True, env={'BEATS': root}, timeout=seconds)
            printed = (caught.value.stdout, caught.value.stderr)
        assert printed == ('out\n', 'err\n')
        await _assert_beats_stopped(sandbox, root)

    async def test_all_processes_of_a_cancelled_command_end(self, sandbox: SandboxProtocol, root: str) -> None:
        await sandbox.make_dir(root)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(sandbox.run, _BEATS + 'sleep 600', shell=True, env={'BEATS': root}))
            await _beats_of(sandbox, root)
            group.cancel_scope.cancel()
        await _assert_beats_stopped(sandbox, root)


async def _beats_of(backend: BackendProtocol, root: str) -> dict[str, bytes]:
    """Return the output of the processes of `_BEATS`, once each of them has written something."""
    with anyio.fail_after(60):
        while len(beats := await _found_beats(backend, root)) < _BEATING:  # noqa: ASYNC110 - a command writes them
            await anyio.sleep(0.01)
    return beats


async def _found_beats(backend: BackendProtocol, root: str) -> dict[str, bytes]:
    """Return the output of those processes of `_BEATS` that have written something."""
    beats = {entry.name: await backend.read_bytes(entry.path) for entry in await backend.list_dir(root)}
    return {name: beat for name, beat in beats.items() if beat}


async def _assert_beats_stopped(sandbox: SandboxProtocol, root: str) -> None:
    """Check that no process of `_BEATS` writes any more, waiting long enough for several lines."""
    before = await _beats_of(sandbox, root)
    await sandbox.run(['sleep', '0.2'])
    assert await _beats_of(sandbox, root) == before
