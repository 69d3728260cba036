"""Updates of a stream: text that becomes void when a model is asked again."""

from __future__ import annotations

import pytest
from a2a.types import TaskArtifactUpdateEvent

from pydantic_deep.server._turn_task import load_task
from pydantic_deep.server.a2a._updates import _StreamedAnswer  # pyright: ignore[reportPrivateUsage] - retries are rare
from pydantic_deep.streaming import RetriedEvent, TextEvent
from tests.server.a2a.conftest import Connect, send
from tests.server.conftest import Served

pytestmark = pytest.mark.anyio


async def test_text_after_a_retry_replaces_the_text_before(connect: Connect, served: Served) -> None:
    """The text of a failed request is void; that of a subagent is not part of the answer."""
    async with connect('writer') as client:
        done = await send(client, 'Hi')
    answer = _StreamedAnswer(await load_task(await served.access(await served.key()), done.id))
    retried = RetriedEvent(attempt=2, attempts=3, reason='timeout', delay_seconds=0, void_text='Ro')
    events = [b'"Ro"', b'"se"', retried, TextEvent(text='x', path=['helper']), TextEvent(text='Tu'), b'"lip"']
    updates = [update for event in events for update in answer.updates(event)]
    assert [
        (update.artifact.parts[0].text, update.append)
        for update in updates
        if isinstance(update, TaskArtifactUpdateEvent)
    ] == [('Ro', False), ('se', True), ('Tu', False), ('lip', True)]
    assert answer.text == 'Tulip'
