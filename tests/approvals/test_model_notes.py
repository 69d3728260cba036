"""Notes to the model about calls that a person edited."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic_ai import FunctionToolset, ModelRetry, RunContext, Tool
from pydantic_ai.exceptions import ToolFailed, ToolFailedError, ToolRetryError
from pydantic_ai.messages import RetryFeedbackPart, RetryInfo, ToolReturn, ToolReturnPart

from pydantic_deep.approvals import Approve, Edit, Respond
from pydantic_deep.failures import ToolFailures

from .conftest import GATED, DeskType, ran, wipe, wiping

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


class TestEdits:
    async def test_edited_call_runs_with_its_new_arguments_and_notifies_the_model(self, desk: DeskType) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.answer(Edit({'x': 'only this'}))
        assert (ran, seen.results) == (['only this'], {'c1': ('success', 'wiped only this')})
        assert seen.told == ['A person changed the arguments of the call c1 of wipe to: {"x": "only this"}']

    async def test_invalid_edit_does_not_run_and_names_its_author(self, desk: DeskType) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.answer(Edit({'y': 1}))
        outcome, content = seen.results['c1']
        assert (ran, outcome) == ([], 'failed')
        assert str(content).startswith('A person changed the arguments of this call, and they are not valid, so it did')

    async def test_edit_refused_by_the_args_validator_does_not_run(self, desk: DeskType) -> None:
        def check(ctx: RunContext[Any], x: str) -> None:
            if x != 'a':
                raise ModelRetry('only a')

        seen = await desk(
            wiping(), toolset=FunctionToolset([Tool(wipe, args_validator=check)]), interrupt_on=GATED
        ).start()
        await seen.answer(Edit({'x': 'b'}))
        assert ran == []
        assert seen.results['c1'] == (
            'failed',
            'A person changed the arguments of this call, and they are not valid, so it did not run: only a',
        )

    async def test_note_preserves_the_fields_of_a_result(self, desk: DeskType) -> None:
        def wipe(x: str) -> ToolReturn[str]:
            contents: dict[str, Any] = {'text': 'more', 'list': ['even', 'more'], 'none': None}
            return ToolReturn(f'wiped {x}', content=contents[x], metadata={'by': 'tool'})

        for x, more in (('text', ['more']), ('list', ['even', 'more']), ('none', [])):
            seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
            await seen.answer(Edit({'x': x}))
            assert seen.results['c1'] == ('success', f'wiped {x}')
            assert seen.told[:-1] == more
            assert 'A person changed the arguments' in seen.told[-1]
            assert seen.metadata == [{'by': 'tool'}]

    @pytest.mark.parametrize(
        ('error', 'outcome'),
        [(ToolFailed('broken'), 'failed'), (ModelRetry('try on'), 'retried'), (OSError('x'), 'failed')],
    )
    async def test_failure_after_an_edit_includes_the_edited_arguments(
        self, desk: DeskType, error: Exception, outcome: str
    ) -> None:
        def wipe(x: str) -> str:
            raise error

        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED, capabilities=lambda: [ToolFailures()]).start()
        await seen.answer(Edit({'x': 'b'}))
        assert seen.results['c1'][0] == outcome
        assert 'to: {"x": "b"}' in str(seen.results['c1'][1])

    async def test_failure_without_an_edit_is_passed_on_unchanged(self, desk: DeskType) -> None:
        def wipe(x: str) -> str:
            raise ToolFailed('broken')

        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.answer(Approve())
        assert seen.results == {'c1': ('failed', 'broken')}

    @pytest.mark.parametrize(
        'error',
        [
            ModelRetry('no'),
            ToolFailedError(ToolReturnPart('wipe', {'not': 'text'}, tool_call_id='c1', outcome='failed')),
            ToolRetryError(RetryFeedbackPart('no', retry=RetryInfo(cause='no_output'))),
        ],
    )
    async def test_note_preserves_the_type_of_a_failure(self, error: Exception) -> None:
        from pydantic_deep.approvals._model_notes import failure_with_note

        noted = failure_with_note(error, wiping(), {'x': 'b'})  # type: ignore[arg-type]
        assert type(noted) is type(error)

    async def test_invalid_arguments_from_the_model_are_retried_without_approval(self, desk: DeskType) -> None:
        seen = await desk(wiping(3), wiping('b', 'c2'), tools=[wipe], interrupt_on=GATED).start()
        assert seen.results['c1'][0] == 'retried'
        assert seen.ids == ['c2']

    async def test_approved_call_that_is_no_longer_valid_is_retried(self, desk: DeskType) -> None:
        valid = [True]

        def check(ctx: RunContext[Any], x: str) -> None:
            if not valid[0]:
                raise ModelRetry('not now')

        seen = await desk(
            [wiping('a', 'c1'), wiping('b', 'c2'), wiping('c', 'c3')],
            toolset=FunctionToolset([Tool(wipe, args_validator=check)]),
            interrupt_on=GATED,
        ).start()
        valid[0] = False
        await seen.answer(Approve(), Respond('said'), None)
        assert (seen.ids, ran) == (['c3'], [])
        assert seen.results == {'c1': ('retried', 'not now'), 'c2': ('success', 'said')}
