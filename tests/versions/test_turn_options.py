"""Turns started with `TurnOptions` instead of keyword arguments."""

from __future__ import annotations

import pytest
from pydantic_ai import CancellationToken, RunCancelled

from pydantic_deep.approvals import Approve, NothingPendingError
from pydantic_deep.errors import ValidationError
from pydantic_deep.store import BranchExistsError
from pydantic_deep.testing import call
from pydantic_deep.versions import TurnOptions
from tests.versions.conftest import MakeAgent

pytestmark = pytest.mark.anyio


async def test_prompt_starts_a_turn(make: MakeAgent):
    root = await make('One.', 'Two.').create()

    first = await root.run(TurnOptions(prompt='a', branch='draft'))
    async with root.stream(TurnOptions(prompt='b', moves_head=True)) as stream:
        assert [text async for text in stream] != []

    assert (first.output, first.branch, stream.version.output) == ('One.', 'draft', 'Two.')


async def test_options_without_a_prompt_require_pending_approvals(make: MakeAgent):
    root = await make().create()

    with pytest.raises(NothingPendingError, match='has no pending approvals'):
        await root.run(TurnOptions())


async def test_turn_takes_either_a_prompt_or_answers(make: MakeAgent):
    root = await make().create()

    with pytest.raises(ValidationError, match='the turn has a prompt'):
        root.stream(TurnOptions(prompt='a', answers={'1': Approve()}))


async def test_answers_are_not_stored_if_the_branch_exists(make: MakeAgent):
    paused = await (await make(call('hold'), 'Done.', tools=[hold], interrupt_on={'hold': True}).create()).advance('a')
    answers = {paused.pending[0].id: Approve()}

    with pytest.raises(BranchExistsError):
        await paused.run(TurnOptions(answers=answers, branch='main'))

    assert (await paused.run(TurnOptions(answers=answers, branch='other'))).output == 'Done.'


async def test_turn_without_streaming_can_be_cancelled(make: MakeAgent):
    token = CancellationToken()

    async def stop() -> str:
        token.cancel()
        return 'stopped'

    root = await make(call('stop'), 'Never.', tools=[stop]).create()
    with pytest.raises(RunCancelled):
        await root.run(TurnOptions(prompt='a', cancellation_token=token))


async def hold() -> str:
    return 'held'
