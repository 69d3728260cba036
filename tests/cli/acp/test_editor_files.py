"""The editor's files: texts that are not saved, and writes that the editor does."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep.cli.turn._change_tracker import unsaved_contents
from pydantic_deep.testing import ScriptedModel, call
from tests.cli.acp.conftest import Connect
from tests.cli.acp.test_session import EDIT, READ, WRITE

BOTH = {'readTextFile': True, 'writeTextFile': True}


async def test_unsaved_text_is_read_and_changed(connect: Connect, work: Path, tmp_path: Path) -> None:
    """A file with unsaved changes is read as in the editor, and an edit of it contains them, in the version too."""
    model = ScriptedModel(READ, EDIT, 'Done.')
    async with connect(model) as editor:
        await editor.declare(fs=BOTH)
        session = await editor.open(work)
        poem = str(work / 'poem.txt')
        editor.buffers[poem] = 'unsaved\nviolet\n'
        editor.options = ['allow']
        await editor.prompt(session, 'Fix it.')
        [diff] = [part for part in editor.requests[0][0].content or () if part.type == 'diff']
        assert (diff.path, diff.old_text, diff.new_text) == (poem, 'unsaved\nviolet\n', 'unsaved\nlily\n')
        assert editor.buffers[poem] == 'unsaved\nlily\n'
        assert set(editor.asked_paths) == {poem}
        assert (await editor.prompt(session, '/diff')).stop_reason == 'end_turn'
        assert '+unsaved' in editor.text()
    assert (work / 'poem.txt').read_text() == 'unsaved\nlily\n'  # what the agent wrote, whatever the editor saved


async def test_new_files_are_written_in_the_editor(connect: Connect, work: Path) -> None:
    """A new file is written by the editor, and read from the disk if the editor does not return it."""
    async with connect(ScriptedModel(WRITE, call('read_file', path='/new.txt'), 'Done.')) as editor:
        await editor.declare(fs={'writeTextFile': True})
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'Write.')
        assert editor.asked_paths == [str(work / 'new.txt')]
    assert (work / 'new.txt').read_text() == 'new\n'


async def test_a_text_that_changes_in_the_editor_meanwhile_is_not_overwritten(connect: Connect, work: Path) -> None:
    """If the user types between the request and the write, the edit applies to the new text."""
    async with connect(ScriptedModel(EDIT, 'Done.')) as editor:
        await editor.declare(fs=BOTH)
        session = await editor.open(work)
        poem = str(work / 'poem.txt')

        async def type_meanwhile(*_: object) -> str:
            editor.buffers[poem] = 'typed\nviolet\n'
            return 'allow'

        editor.answer = type_meanwhile
        await editor.prompt(session, 'Fix it.')
        assert editor.buffers[poem] == 'typed\nlily\n'


@pytest.mark.parametrize('text', ['', 'typed'])
async def test_an_unsaved_new_file_is_not_overwritten(connect: Connect, work: Path, text: str) -> None:
    """If the user has typed a file that does not exist yet, creating it fails. An empty text is none."""
    async with connect(ScriptedModel(WRITE, 'Done.')) as editor:
        await editor.declare(fs=BOTH)
        session = await editor.open(work)
        editor.buffers[str(work / 'new.txt')] = text
        editor.options = ['allow']
        await editor.prompt(session, 'Write.')
        assert editor.buffers[str(work / 'new.txt')] == (text or 'new\n')
        [call, *_] = [
            update for update in editor.of_kind('tool_call_update') if update.status in ('completed', 'failed')
        ]
        assert call.status == ('failed' if text else 'completed')
        if text:
            assert (
                'The editor has an unsaved text for this new file. Ask the user to save it'
                in call.content[0].content.text
            )
    assert (work / 'new.txt').exists() is not bool(text)


async def test_files_are_written_on_disk_if_the_editor_only_reads(connect: Connect, work: Path) -> None:
    """Without the capability to write, the editor is not asked to."""
    async with connect(ScriptedModel(WRITE, 'Done.')) as editor:
        await editor.declare(fs={'readTextFile': True})
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'Write.')
        assert editor.buffers == {}
    assert (work / 'new.txt').read_text() == 'new\n'


async def test_a_refused_write_is_a_failed_call(connect: Connect, work: Path) -> None:
    """If the editor refuses to write, nothing is written, and the model receives the reason."""
    async with connect(ScriptedModel(WRITE, 'Done.')) as editor:
        await editor.declare(fs=BOTH)
        editor.refuses_writes = True
        session = await editor.open(work)
        editor.options = ['allow']
        await editor.prompt(session, 'Write.')
        assert (
            'The editor refused to write the file: No' in editor.of_kind('tool_call_update')[-1].content[0].content.text
        )
    assert not (work / 'new.txt').exists()


async def test_the_editor_is_not_asked_about_other_files(connect: Connect, work: Path, tmp_path: Path) -> None:
    """Paths outside of the directory are refused before the editor is asked, through links too. Binary data is local."""
    (tmp_path / 'secret').write_text('secret')
    (work / 'link').symlink_to(tmp_path / 'secret')
    (work / 'data.bin').write_bytes(b'\xff\x00')
    calls = [
        call('read_file', path='/../secret'),
        call('read_file', path='/link'),
        call('read_file', path='/data.bin'),
        call('write_file', path='/link', content='x'),
    ]
    async with connect(ScriptedModel(*calls, 'Done.')) as editor:
        await editor.declare(fs=BOTH)
        session = await editor.open(work)
        await editor.connection.set_session_mode(session_id=session, mode_id='auto')
        await editor.prompt(session, 'Try.')
        assert editor.asked_paths == []
    assert (tmp_path / 'secret').read_text() == 'secret'


@pytest.mark.parametrize(
    ('saved', 'text', 'contents'),
    [
        (b'a\r\nb\r\n', 'a\nb\n', b'a\r\nb\r\n'),
        (b'a\r\nb\r\n', 'a\nc\n', b'a\r\nc\r\n'),
        (b'\xef\xbb\xbfa\n', 'a', b'\xef\xbb\xbfa\n'),
        (b'\xef\xbb\xbfa\n', 'b', b'\xef\xbb\xbfb\n'),
        (b'a', 'a\nb', b'a\nb'),
        (b'a\n', '', b''),
    ],
)
def test_unsaved_text_keeps_the_form_of_the_file(saved: bytes, text: str, contents: bytes) -> None:
    """Line ends, a byte order mark and a last line feed are those of the file; an equal text is the file itself."""
    assert unsaved_contents(saved, text) == contents
