"""Virtual paths: refused paths, valid names, and properties of parsing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep_backends.errors import InvalidPathError
from pydantic_deep_backends.paths import (
    MAX_COMPONENT_BYTES,
    MAX_PATH_BYTES,
    display_path,
    is_within,
    parse_path,
    path_parts,
    path_problem,
    relative_to,
    resolve_path,
)

HOSTILE = [
    ('', 'relative'),
    ('a', 'relative'),
    ('a/b', 'relative'),
    ('.', 'relative'),
    ('..', 'relative'),
    ('../etc/passwd', 'relative'),
    ('/..', '`..`'),
    ('/../etc/passwd', '`..`'),
    ('/a/../b', '`..`'),
    ('/a/..', '`..`'),
    ('/a/./../b', '`..`'),
    ('/a//..//b', '`..`'),
    ('//srv/x', '`//`'),
    ('///a', '`//`'),
    ('//', '`//`'),
    ('~', 'home'),
    ('~/x', 'home'),
    ('~root/x', 'home'),
    ('/~', 'home'),
    ('/~/x', 'home'),
    ('/~root/x', 'home'),
    ('/./~/x', 'home'),
    ('C:', 'drive'),
    ('C:\\x', 'drive'),
    ('c:/x', 'drive'),
    ('/C:/x', 'drive'),
    ('/./C:/x', 'drive'),
    ('/z:x', 'drive'),
    ('\\\\srv\\x', 'relative'),
    ('/..\\', 'backslash'),
    ('/..\\..\\x', 'backslash'),
    ('/a\\b', 'backslash'),
    ('/a\0b', 'control'),
    ('/\0', 'control'),
    ('/a\nb', 'control'),
    ('/a\rb', 'control'),
    ('/a\tb', 'control'),
    ('/a\x1b[31mb', 'control'),
    ('/a\x7f', 'control'),
    ('/a\x80b', 'control'),
    ('/a\x85b', 'control'),
    ('/a\x9f', 'control'),
    ('/a\ud800', 'surrogate'),
    ('/\udcff', 'surrogate'),
    ('/' + 'a' * 256, '256 bytes'),
    ('/' + 'é' * 128, '256 bytes'),
    ('/' + 'ab/' * 1400, '4,201 bytes'),
    ('/' + 'a/' * 2048, '4,097 bytes'),
]

GOOD = [
    ('/', '/'),
    ('/.', '/'),
    ('/./', '/'),
    ('/a', '/a'),
    ('/a/', '/a'),
    ('/a//b///c', '/a/b/c'),
    ('/a/./b/.', '/a/b'),
    ('/foo..bar', '/foo..bar'),
    ('/...', '/...'),
    ('/..a', '/..a'),
    ('/a..', '/a..'),
    ('/%2e%2e/x', '/%2e%2e/x'),
    ('/．．／x', '/．．／x'),
    ('/a ', '/a '),
    ('/ a', '/ a'),
    ('/a.', '/a.'),
    ("/a'", "/a'"),
    ('/a"', '/a"'),
    ('/a/~', '/a/~'),
    ('/a/C:', '/a/C:'),
    ('/a~', '/a~'),
    ('/proc/self/root', '/proc/self/root'),
    ('/.env', '/.env'),
    ('/日本語/é', '/日本語/é'),
    ('/e\u0301', '/e\u0301'),
    ('/gnp.\u202eexe', '/gnp.\u202eexe'),
    ('/a\u200db', '/a\u200db'),
    ('/a\u2028b', '/a\u2028b'),
    ('/$HOME/*', '/$HOME/*'),
    ('/' + 'a' * MAX_COMPONENT_BYTES, '/' + 'a' * MAX_COMPONENT_BYTES),
    ('/a' * (MAX_PATH_BYTES // 2), '/a' * (MAX_PATH_BYTES // 2)),
]

names = st.text(
    st.characters(exclude_categories=['Cs', 'Cc'], exclude_characters='/\\'), min_size=1, max_size=8
).filter(lambda name: name not in ('.', '..'))
anything = st.text(st.sampled_from('/.~aC:\\\0\n é\ud800'), max_size=12) | st.text(max_size=20)


@pytest.mark.parametrize(('path', 'reason'), HOSTILE)
def test_hostile_paths_are_refused_with_their_reason(path: str, reason: str) -> None:
    with pytest.raises(InvalidPathError, match=reason) as caught:
        parse_path(path)
    assert caught.value.path == path
    assert path_problem(path) is not None


@pytest.mark.parametrize(('path', 'canonical'), GOOD)
def test_valid_paths_become_canonical(path: str, canonical: str) -> None:
    assert parse_path(path) == canonical
    assert path_problem(path) is None


@given(anything)
def test_parse_path_is_idempotent(text: str) -> None:
    try:
        path = parse_path(f'/{text}')
    except InvalidPathError:
        return
    assert parse_path(path) == path


@given(anything)
def test_parsed_path_stays_below_the_root(text: str) -> None:
    try:
        path = parse_path(f'/{text}')
    except InvalidPathError:
        return
    assert path.startswith('/')
    assert not {'', '.', '..'} & set(path[1:].split('/')) or path == '/'
    assert '\\' not in path
    assert '\0' not in path


@given(st.lists(names, max_size=5), st.lists(names, max_size=5))
def test_relative_to_is_the_inverse_of_joining(parents: list[str], rest: list[str]) -> None:
    directory = '/' + '/'.join(parents)
    path = '/' + '/'.join([*parents, *rest])
    assert is_within(path, directory)
    assert relative_to(path, directory) == '/'.join(rest)
    assert path_parts(path) == (*parents, *rest)


@given(anything)
def test_display_path_is_one_visible_line(text: str) -> None:
    shown = display_path(text)
    assert not any(char in shown for char in '\n\r\0\x1b\x85\u2028\u2029\u202e\u200b\ud800')
    assert display_path(shown) == shown


@pytest.mark.parametrize(
    ('path', 'working_dir', 'expected'),
    [
        ('', '/w', '/w'),
        ('.', '/w', '/w'),
        ('./', '/', '/'),
        ('a/b', '/w', '/w/a/b'),
        ('a', '/', '/a'),
        ('./a', '/w/x', '/w/x/a'),
        ('/a', '/w', '/a'),
        ('.env', '/w', '/w/.env'),
        ('a~', '/w', '/w/a~'),
    ],
)
def test_relative_path_starts_at_the_working_directory(path: str, working_dir: str, expected: str) -> None:
    assert resolve_path(path, working_dir) == expected


@pytest.mark.parametrize('path', ['..', '../x', 'a/../../x', '~', '~/x', './~', 'C:\\x', 'C:', '//srv', 'a\0', 'a\\b'])
def test_hostile_relative_path_is_refused(path: str) -> None:
    with pytest.raises(InvalidPathError):
        resolve_path(path, '/w')


@pytest.mark.parametrize(
    ('path', 'directory', 'expected'),
    [
        ('/a', '/', True),
        ('/', '/', True),
        ('/a', '/a', True),
        ('/a/b', '/a', True),
        ('/memory', '/mem', False),
        ('/mem', '/memory', False),
        ('/', '/a', False),
        ('/b', '/a', False),
    ],
)
def test_is_within_compares_components(path: str, directory: str, expected: bool) -> None:
    assert is_within(path, directory) is expected


def test_relative_to_an_unrelated_directory_raises() -> None:
    with pytest.raises(ValueError, match="'/memory' is not within '/mem'"):
        relative_to('/memory', '/mem')


@pytest.mark.parametrize(
    ('path', 'shown'),
    [
        ('/plain/name with space', '/plain/name with space'),
        ('/naïve/日本語', '/naïve/日本語'),
        ('/a\nb', r'/a\nb'),
        ('/a\r\tb', r'/a\r\tb'),
        ('/a\x1bb', r'/a\x1bb'),
        ('/a\x85b', r'/a\x85b'),
        ('/gnp.\u202eexe', r'/gnp.\u202eexe'),
        ('/a\u2066b', r'/a\u2066b'),
        ('/a\u200bb\ufeff', r'/a\u200bb\ufeff'),
        ('/a\u2028b', r'/a\u2028b'),
        ('/a\u3164b', r'/a\u3164b'),
        ('/a\ufe0fb', r'/a\ufe0fb'),
        ('/a\U000e0101b', r'/a\U000e0101b'),
        ('/a\udcffb', r'/a\udcffb'),
    ],
)
def test_display_path_escapes_invisible_characters(path: str, shown: str) -> None:
    assert display_path(path) == shown
