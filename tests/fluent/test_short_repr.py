"""Values in errors are shortened."""

from __future__ import annotations

import pytest

from pydantic_deep.fluent import MessageList, TranscriptError
from pydantic_deep.fluent._format import Document


def test_error_messages_are_bounded() -> None:
    documents: list[Document] = [
        {'format_version': 10**1000, 'messages': []},
        {'format_version': 1, 'messages': [{'kind': 'x' * 10_000, 'parts': []}]},
    ]
    for document in documents:
        with pytest.raises(TranscriptError) as error:
            MessageList.from_dict(document)
        assert len(str(error.value)) < 1200
