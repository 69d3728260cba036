"""Turns started with `TurnOptions` instead of keyword arguments."""

from __future__ import annotations

import pytest
from pydantic_ai import CancellationToken, RunCancelled
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep.approvals import Approve, NothingPendingError
from pydantic_deep.errors import ValidationError
from pydantic_deep.store import BranchExistsError, new_id
from pydantic_deep.testing import ScriptedModel, call
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


def test_options_reach_another_process_as_they_are():
    options = TurnOptions(
        prompt=['a', 'b'],
        model='test',
        model_settings=ModelSettings(seed=7),
        branch='draft',
        usage_limits=UsageLimits(request_limit=3),
        run_id=new_id(),
        moves_head=True,
    )

    prompt, dumped = options.dump()

    assert TurnOptions.load(prompt, dumped, run_id=str(options.run_id), moves_head=True) == options


def test_answers_do_not_reach_another_process():
    """They are stored before, so that all processes have them."""
    prompt, dumped = TurnOptions(answers={'1': Approve()}, by='ann', reason='ok').dump()

    assert (prompt, TurnOptions.load(prompt, dumped, run_id='r', moves_head=False)) == (None, TurnOptions(run_id='r'))


@pytest.mark.parametrize(
    ('options', 'problem'),
    [
        (TurnOptions(prompt='a', deps=object()), r'deps: a turn that another process runs creates its own'),
        (TurnOptions(prompt='a', model=ScriptedModel('b')), r'model: another process cannot have a ScriptedModel'),
        (TurnOptions(prompt='a', model_settings=ModelSettings(extra_body={'a': object()})), r'extra_body: .* not JSON'),
        (TurnOptions(prompt='a', branch=' '), r'branch: it is empty'),
    ],
)
def test_options_that_another_process_cannot_have_are_refused(options: TurnOptions, problem: str):
    with pytest.raises(ValidationError, match=problem):
        options.dump()


async def hold() -> str:
    return 'held'
