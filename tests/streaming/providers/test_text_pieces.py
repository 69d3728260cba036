"""Text that grows by pieces, some of which are JSON."""

from __future__ import annotations

from pydantic_deep.streaming.providers._text_pieces import TextPieces


def test_pieces_of_both_kinds_keep_their_order() -> None:
    pieces = TextPieces('a')
    pieces.append_json(b'"b\\n"')
    pieces.append_json(b'"c"')
    pieces.append('d')
    pieces.append_json(b'"e"')

    assert pieces
    assert pieces.text == pieces.text == 'ab\ncde'


def test_no_piece_is_no_text() -> None:
    assert not TextPieces()
    assert TextPieces().text == ''
