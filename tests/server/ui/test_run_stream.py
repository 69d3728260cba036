"""What streams know of their run."""

from __future__ import annotations

import pytest

from pydantic_deep.server.ui._run_stream import RunCalls, RunStream
from pydantic_deep.store import new_id
from tests.server.conftest import Served

pytestmark = pytest.mark.anyio


async def test_run_that_was_deleted_has_no_calls(served: Served):
    """Its log may still be rendered, after a person has deleted its conversation."""
    stream = RunStream(agent=served.state.agents['writer'], id=new_id())

    assert await stream.calls() == RunCalls()
