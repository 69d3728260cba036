"""View of a pending call in the approval prompt."""

from __future__ import annotations

import pytest
from inline_snapshot import snapshot
from pydantic import JsonValue

from pydantic_deep.approvals import Preview, view_diff
from tests.cli.conftest import show_call


def diff_of(path: str, old: str | None, new: str) -> Preview:
    return Preview(kind='diff', diff=view_diff(path, old, new))


POEM = diff_of('/poem.txt', 'rose\nviolet\noak\n', 'rose\nlily\nwhite\noak\n')


def test_view_shows_all_arguments_and_the_subagent_path() -> None:
    args: dict[str, JsonValue] = {
        'path': '/poem.txt',
        'old_string': 'violet',
        'new_string': 'lily\nwhite',
        'all': False,
    }
    assert show_call(args, POEM, path=('researcher', 'checker'), count=2) == snapshot("""\
? edit_file  1 of 2
  subagent: researcher › checker
  path: /poem.txt
  old_string: violet
  new_string: \n\
  │ lily
  │ white
  │ (no newline at its end)
  all: false
  │ --- a/poem.txt
  │ +++ b/poem.txt
  │ @@ -1,3 +1,4 @@
  │  rose
  │ -violet
  │ +lily
  │ +white
  │  oak
""")


def test_long_argument_fully_contained_in_the_diff_is_not_repeated() -> None:
    new_file = diff_of('/a', None, 'one\ntwo\nthree\n')
    assert show_call({'path': '/a', 'content': 'one\ntwo\nthree\n'}, new_file) == snapshot("""\
? edit_file
  path: /a
  content: all of it is in the diff
  │ --- /dev/null
  │ +++ b/a
  │ @@ -0,0 +1,3 @@
  │ +one
  │ +two
  │ +three
""")


@pytest.mark.parametrize('content', ['rose\nlily\nwhite\noak\n', 'rose\nviolet\noak'])
def test_argument_is_matched_against_both_sides_of_the_diff(content: str) -> None:
    assert 'content: all of it is in the diff' in show_call({'content': content}, POEM)


@pytest.mark.parametrize(
    'content', ['rose\nlily\noak\n', 'x\nrose\nlily\nwhite\noak\n', 'lily\nwhite\n', 'oak\n\n\n\n']
)
def test_argument_only_partly_in_the_diff_is_shown(content: str) -> None:
    shown = show_call({'content': content}, POEM)
    assert '  content: \n' + ''.join(f'  │ {line}\n' for line in content.removesuffix('\n').split('\n')) in shown


def test_previewed_command_is_shown_once_with_all_lines() -> None:
    preview = Preview(kind='command', text='ls -la\nrm x')
    assert show_call({'command': 'ls -la\nrm x', 'timeout_seconds': 5}, preview) == snapshot("""\
? edit_file
  timeout_seconds: 5
  │ $ ls -la
  │   rm x
""")


def test_command_that_differs_from_the_preview_is_shown() -> None:
    assert 'command: ls -l\n' in show_call({'command': 'ls -l'}, Preview(kind='command', text='ls'))


def test_view_without_preview_shows_only_the_arguments() -> None:
    assert show_call({'a': None, 'b': [1, 'ü'], 'c': 'x'}, Preview(kind='call')) == snapshot("""\
? edit_file
  a: null
  b: [1, "ü"]
  c: x
""")


def test_other_preview_kinds_are_shown_unchanged() -> None:
    assert show_call({}, Preview(kind='call', text='Sends 2 mails')) == snapshot("""\
? edit_file
  │   Sends 2 mails
""")


@pytest.mark.parametrize(
    ('value', 'shown'), [('5', '"5"'), ('true', '"true"'), ('', '""'), (' x', '" x"'), ('x', 'x'), ('{', '{')]
)
def test_strings_that_look_like_other_types_are_quoted(value: str, shown: str) -> None:
    assert show_call({'a': value}).endswith(f'  a: {shown}\n')


def test_multiline_argument_reports_a_missing_final_newline() -> None:
    assert show_call({'a': 'x\ny'}).endswith('  │ y\n  │ (no newline at its end)\n')


def test_invisible_characters_are_escaped_everywhere() -> None:
    args: dict[str, JsonValue] = {'na\u202eme': 'a\x1b[2Jb', 'b': ['\u200b'], 'c': 'x\ry\n\u2066z\n'}
    shown = show_call(args, diff_of('/a', '\x1b[31m\n', '\ufeff\n'), path=('\x07',))
    assert not set('\x1b\x07\r\u202e\u200b\u2066\ufeff') & set(shown)
    assert [text for text in ('\\x07', '\\u202e', '\\x1b[2J', '\\u200b', '\\r', '\\ufeff') if text not in shown] == []


@pytest.mark.parametrize('width', [80, 40, 12])
def test_model_text_cannot_imitate_prompt_lines(width: int) -> None:
    forged = '[y]es  [n]o  [e]dit'
    long = ' '.join(['word'] * 40) + f' {forged}'
    args: dict[str, JsonValue] = {'path': long, 'content': f'{long}\n{forged}\n? edit_file\n'}
    shown = show_call(args, diff_of('/a', None, f'{long}\n'), width=width)
    title, *lines = shown.splitlines()
    assert title == '? edit_file'
    assert [line for line in lines if not line.startswith('  ')] == []
    assert max(map(len, lines)) <= width
    # Wrapped lines have another mark than the first line.
    assert sum(line.startswith('  │ ') for line in lines) == 7
    assert any(line.startswith('  ┆ ') for line in lines)
    assert any(line.startswith('    ') for line in lines)
