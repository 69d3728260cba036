"""The diff between a recorded request and the actual one."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from pydantic_deep.testing import RecordedModel, RecordedRequestError

from .conftest import INSTRUCTIONS, counter

pytestmark = pytest.mark.anyio


async def test_changed_instruction_raises_with_a_diff(recording: Path) -> None:
    changed = INSTRUCTIONS.replace('a number', 'a word')
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), instructions=changed).run('How many words?')
    error = caught.value
    assert (error.path, error.exchange) == (recording, 0)
    assert error.diff == snapshot("""\
--- recorded
+++ actual
@@ -1,5 +1,5 @@
 instructions:
   You count words.
-  Answer with a number.
+  Answer with a word.
 tools:
   -\
""")
    assert str(error) == (
        f'{str(recording)!r} has no response to this request. The most similar exchange is 0 (of 0 to 1). '
        f'If the change is intended, record the conversation again with `RecordingModel`.\n{error.diff}'
    )


async def test_changed_tool_description_raises_with_a_diff(recording: Path) -> None:
    def count_words(path: str) -> int:
        """Count the words of a text file."""
        return len(path)

    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), tool=count_words).run('How many words?')
    assert caught.value.diff == snapshot("""\
--- recorded
+++ actual
@@ -5,5 +5,5 @@
   -
     name: count_words
-    description: Count the words of a file.
+    description: Count the words of a text file.
     parameters:
       additionalProperties: false\
""")


async def test_diff_of_a_long_prompt_is_truncated(recording: Path) -> None:
    long = '\n'.join(f'Rule {n} is to be kept.' for n in range(1000))
    with pytest.raises(RecordedRequestError) as caught:
        await counter(RecordedModel(recording), instructions=long).run('How many words?')
    lines = caught.value.diff.splitlines()
    assert len(lines) == 61
    assert lines[-1].startswith('… ')
