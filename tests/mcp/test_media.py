"""Files in results of servers."""

from __future__ import annotations

from pydantic_ai import BinaryContent, ToolReturn

from pydantic_deep.mcp._media import with_visible_media

NOTE = 'Only images and PDFs of at most 5,000,000 bytes can be shown.'


def test_files_that_models_cannot_see_are_named() -> None:
    """Providers refuse a history with such a file, so the conversation could not continue."""
    image = BinaryContent(b'x', media_type='image/png')
    archive = BinaryContent(b'12345', media_type='application/zip')
    large = BinaryContent(b'x' * 5_000_001, media_type='application/pdf')
    assert with_visible_media(archive) == f'application/zip, 5 bytes. {NOTE}'
    assert with_visible_media(['text', image, archive, large, {'a': 1}]) == [
        'text',
        image,
        f'application/zip, 5 bytes. {NOTE}',
        f'application/pdf, 5,000,001 bytes. {NOTE}',
        {'a': 1},
    ]


def test_metadata_of_a_result_remains() -> None:
    """The page of an MCP app is in the metadata."""
    returned = with_visible_media(ToolReturn([BinaryContent(b'', media_type='audio/wav')], metadata={'a': 1}))
    assert returned == ToolReturn([f'audio/wav, 0 bytes. {NOTE}'], metadata={'a': 1})
