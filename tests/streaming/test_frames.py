"""Parsing and rendering of frames, according to WHATWG HTML section 9.2."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.streaming import Frame, FrameReader, FrameTooLargeError, render_frame

one_line = st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\r\n'))
some_frames = st.builds(
    Frame,
    data=st.text(st.characters(exclude_categories=['Cs'], exclude_characters='\r')),
    event=st.none() | one_line.filter(bool),
    id=st.none() | one_line.filter(lambda id: '\0' not in id),
    retry_milliseconds=st.none() | st.integers(min_value=0, max_value=10**15 - 1),
)
fields = [b'data: ', b'data:', b'data', b'event: x', b'id: 1', b'id: \0', b'retry: 5', b': ', b'\r', b'\n', b'\r\n']
pieces = st.sampled_from([*fields, b'\xef\xbb\xbf', b'\xc3', b'\xa9', '€'.encode(), b'abc', b'\xff'])


def read(*chunks: bytes, max_frame_bytes: int = 1000) -> list[Frame]:
    """Return all frames, an unfinished frame with the event `unfinished`, or the size error."""
    reader = FrameReader(max_frame_bytes=max_frame_bytes)
    frames: list[Frame] = []
    for chunk in chunks:
        try:
            frames += reader.feed(chunk)
        except FrameTooLargeError as error:
            return [*frames, *error.frames, Frame(event='too large')]
    if unfinished := reader.finish():
        frames.append(Frame(event='unfinished', data=unfinished.data))
    return frames


def data(stream: bytes) -> list[str]:
    return [frame.data for frame in read(stream)]


@given(st.lists(pieces, max_size=30).map(b''.join), st.data(), st.integers(min_value=5, max_value=40))
def test_chunk_boundaries_do_not_matter(stream: bytes, drawn: st.DataObject, max_frame_bytes: int) -> None:
    cuts = sorted(drawn.draw(st.lists(st.integers(0, len(stream)))))
    chunks = [stream[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert read(*chunks, max_frame_bytes=max_frame_bytes) == read(stream, max_frame_bytes=max_frame_bytes)


@given(st.binary())
def test_any_bytes_can_be_read(stream: bytes) -> None:
    assert read(stream) == read(*(stream[at : at + 1] for at in range(len(stream))))


@given(st.lists(some_frames, max_size=4))
def test_rendered_frames_round_trip(frames: list[Frame]) -> None:
    assert FrameReader().feed(''.join(map(render_frame, frames)).encode()) == frames


@pytest.mark.parametrize('end', [b'\n', b'\r', b'\r\n'])
def test_lines_may_end_with_lf_cr_or_crlf(end: bytes) -> None:
    assert data(end.join([b'data: a', b'data: b', b'', b'data: c', b'', b''])) == ['a\nb', 'c']


def test_line_end_split_across_chunks_counts_once() -> None:
    reader = FrameReader()

    assert reader.feed(b'data: a\r') == []
    assert reader.feed(b'\ndata: b\r') == []
    assert reader.feed(b'\n\r') == [Frame(data='a\nb')]
    assert reader.feed(b'\n\ndata: c\n\n') == [Frame(data='c')]


def test_characters_may_be_split_anywhere() -> None:
    stream = 'data: naïve – 北京 🎉\n\n'.encode()

    assert read(*(bytes([byte]) for byte in stream)) == [Frame(data='naïve – 北京 🎉')]


def test_only_ascii_line_ends_end_a_line() -> None:
    assert data('data: a\u2028b\u0085c\x0b\x0cd\n\n'.encode()) == ['a\u2028b\u0085c\x0b\x0cd']


def test_one_byte_order_mark_is_dropped() -> None:
    assert data(b'\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n') == ['a']


def test_only_one_optional_space_after_the_colon_is_removed() -> None:
    assert data(b'data:a\n\ndata: a\n\ndata:  a\n\n') == ['a', 'a', ' a']


def test_examples_of_the_standard_are_parsed() -> None:
    assert data(b': test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n') == [
        'first event',
        'second event',
        ' third event',
    ]
    assert data(b'data\n\ndata\ndata\n\n') == ['', '\n']


def test_comments_and_unknown_fields_are_ignored() -> None:
    assert read(b': ping\n\n:\n\nwhat: ever\n\ndata: a\n: in between\nother\n\n') == [Frame(data='a')]


def test_id_and_retry_without_data_are_stored_in_the_reader() -> None:
    reader = FrameReader()

    assert reader.feed(b'event: x\nid: 7\nretry: 2500\n\ndata: a\n\n') == [Frame(data='a')]
    assert reader.last_event_id == '7'
    assert reader.retry_milliseconds == 2500


def test_empty_id_resets_the_last_event_id() -> None:
    reader = FrameReader()

    assert [frame.id for frame in reader.feed(b'id: 7\ndata\n\nid\ndata\n\n')] == ['7', '']
    assert reader.last_event_id == ''


def test_id_containing_nul_is_ignored() -> None:
    assert read(b'id: 1\nid: 2\0\ndata: a\n\n') == [Frame(data='a', id='1')]


@pytest.mark.parametrize('retry', ['', '-1', '1.5', '+1', '1e3', '٣', '²', '9' * 5000])
def test_retry_that_is_not_digits_is_ignored(retry: str) -> None:
    assert FrameReader().feed(f'retry: {retry}\ndata: a\n\n'.encode()) == [Frame(data='a')]


@pytest.mark.parametrize('rest', [b'data: b', b'data: b\n', b'data: b\r', b'data: b\r\n'])
def test_unfinished_frame_is_reported(rest: bytes) -> None:
    reader = FrameReader()

    assert reader.feed(b'data: a\n\n' + rest) == [Frame(data='a')]
    assert reader.finish() == Frame(data='b')
    assert reader.finish() is None


def test_unfinished_field_is_reported() -> None:
    reader = FrameReader()
    reader.feed(b'data: a\n\nda')

    assert reader.finish() == Frame()


@pytest.mark.parametrize('rest', [b'', b': ping', b'\n', b'\r', b'\xef\xbb\xbf'])
def test_end_without_unfinished_data_is_not_reported(rest: bytes) -> None:
    reader = FrameReader()
    reader.feed(rest)

    assert reader.finish() is None


@pytest.mark.parametrize(
    'stream', [b'data: ' + b'x' * 101, b': ' + b'x' * 101, b'data: 0123456789\n' * 10, b'data\n' * 101]
)
def test_oversized_frame_is_an_error(stream: bytes) -> None:
    reader = FrameReader(max_frame_bytes=100)

    with pytest.raises(FrameTooLargeError, match='more than 100 bytes') as raised:
        reader.feed(b'data: before\n\n' + stream)
    assert raised.value.frames == [Frame(data='before')]
    assert raised.value.max_frame_bytes == 100
    with pytest.raises(FrameTooLargeError):
        reader.feed(b'x' * 101)


def test_pings_do_not_count_toward_the_frame_size() -> None:
    assert read(b'data: a\n' + b': ping\nretry: 1\n' * 1000 + b'\n', max_frame_bytes=20)[0].data == 'a'


def test_frame_is_rendered_field_by_field() -> None:
    frame = Frame(data='a\nb', event='text', id='run.1.7', retry_milliseconds=3000)

    assert render_frame(frame) == 'event: text\nid: run.1.7\nretry: 3000\ndata: a\ndata: b\n\n'
    assert render_frame(Frame(event='')) == 'data: \n\n'


def test_each_line_of_data_is_rendered_as_its_own_field() -> None:
    """Otherwise text of a model could start a new frame."""
    assert (
        render_frame(Frame(data='a\rdata: b\r\n\r\nevent: c')) == 'data: a\ndata: data: b\ndata: \ndata: event: c\n\n'
    )


@pytest.mark.parametrize('bad', ['a\nb', 'a\rb'])
def test_id_or_event_with_several_lines_is_refused(bad: str) -> None:
    with pytest.raises(ValueError, match='The event of a frame cannot be'):
        render_frame(Frame(event=bad))
    with pytest.raises(ValueError, match='The id of a frame cannot be'):
        render_frame(Frame(id=bad))


def test_id_containing_nul_is_refused() -> None:
    """Readers would ignore it and use the previous id."""
    with pytest.raises(ValueError, match='The id of a frame cannot be'):
        render_frame(Frame(id='a\0b'))
