"""Bytes of written files."""

from __future__ import annotations

import codecs

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from pydantic_deep.filesystem._edit import SeveralMatchesError
from pydantic_deep.filesystem._write_plan import ChangedSinceReadError, NotTextError, plan_edit, plan_write
from pydantic_deep_backends import digest_of

GERMAN = 'Größe und Menge der Äpfel, Öl für die Mühle\r\nüber den Flüssen schön\r\n'

MARKED = {
    'utf-8': (b'', 'utf-8'),
    'utf-8 with a mark': (codecs.BOM_UTF8, 'utf-8'),
    'utf-16 little': (codecs.BOM_UTF16_LE, 'utf-16-le'),
    'utf-16 big': (codecs.BOM_UTF16_BE, 'utf-16-be'),
    'utf-32 little': (codecs.BOM_UTF32_LE, 'utf-32-le'),
    'utf-32 big': (codecs.BOM_UTF32_BE, 'utf-32-be'),
}


def test_new_file_is_utf_8_as_given() -> None:
    written = plan_write('a\r\nb\né', None, None)
    assert (written.data, written.replaced, written.encoding) == ('a\r\nb\né'.encode(), False, 'utf-8')


def test_file_deleted_since_it_was_read_is_created() -> None:
    assert plan_write('a', None, digest_of(b'old')).data == b'a'


def test_file_changed_since_it_was_read_is_refused() -> None:
    with pytest.raises(ChangedSinceReadError):
        plan_write('mine', b'theirs', digest_of(b'as I read it'))


def test_file_unchanged_since_it_was_read_is_replaced() -> None:
    assert plan_write('new', b'old', digest_of(b'old')).replaced


def test_file_never_read_is_replaced() -> None:
    assert plan_write('new', b'old', None).data == b'new'


@pytest.mark.parametrize(('mark', 'codec'), MARKED.values(), ids=MARKED)
def test_replaced_text_keeps_its_encoding_and_byte_order_mark(mark: bytes, codec: str) -> None:
    assert plan_write('né\n', mark + 'alt\n'.encode(codec), None).data == mark + 'né\n'.encode(codec)


def test_replaced_text_keeps_crlf_if_the_content_has_only_lf() -> None:
    written = plan_write('a\nb', b'x\r\ny\r\n', None)
    assert (written.data, written.crlf) == (b'a\r\nb', True)


@pytest.mark.parametrize('content', ['a\r\nb\n', 'a\rb\n', 'a'])
def test_content_with_other_line_ends_is_written_as_given(content: str) -> None:
    written = plan_write(content, b'x\r\ny\r\n', None)
    assert (written.data, written.crlf) == (content.encode(), False)


@pytest.mark.parametrize('before', [b'x\r\ny\n', b'x\ny\n', b'xy', b''])
def test_line_ends_are_lf_unless_all_were_crlf(before: bytes) -> None:
    assert plan_write('a\nb\n', before, None).data == b'a\nb\n'


def test_content_the_old_encoding_cannot_represent_is_utf_8() -> None:
    written = plan_write('5 €, 雪', GERMAN.encode('latin-1'), None)
    assert (written.data, written.encoding) == ('5 €, 雪'.encode(), 'utf-8')


def test_binary_file_is_replaced() -> None:
    written = plan_write('text\n', b'\0\r\n\x01\r\n', None)
    assert (written.data, written.encoding) == (b'text\n', 'utf-8')


def test_edit_of_a_latin_1_file_changes_no_other_byte() -> None:
    before = GERMAN.encode('latin-1')
    after, edited = plan_edit(before, 'Menge', 'Länge', replace_all=False)
    assert after == before.replace(b'Menge', 'Länge'.encode('latin-1'))
    assert edited.line_numbers == (1,)


def test_unencodable_character_raises() -> None:
    with pytest.raises(UnicodeEncodeError):
        plan_edit(GERMAN.encode('latin-1'), 'Menge', '雪', replace_all=False)


def test_edit_of_binary_data_is_refused() -> None:
    with pytest.raises(NotTextError):
        plan_edit(b'\x7fELF\0\0', 'ELF', 'PDF', replace_all=False)


@given(
    before=st.text('ab\né雪'),
    old=st.text('ab\né雪', min_size=1),
    after=st.text('ab\né雪'),
    new=st.text('ab\né雪', min_size=1),
    form=st.sampled_from(sorted(MARKED)),
)
def test_inverse_edit_restores_the_bytes(before: str, old: str, after: str, new: str, form: str) -> None:
    mark, codec = MARKED[form]
    data = mark + (before + old + after).encode(codec)
    try:
        there, _ = plan_edit(data, old, new, replace_all=False)
        back, _ = plan_edit(there, new, old, replace_all=False)
    except SeveralMatchesError:
        assume(False)
    else:
        assert there == mark + (before + new + after).encode(codec)
        assert back == data
