"""Names of tools in `interrupt_on`: unknown ones are an error before the first request."""

from __future__ import annotations

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool, ToolDefinition, UserError
from pydantic_ai.tools import DeferredToolRequests

from pydantic_deep.approvals import Approvals
from pydantic_deep.testing import ScriptedModel, call

from .conftest import DeskType, Preapproving, look, ran, wipe

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


class TestNames:
    async def test_misspelt_tool_name_raises_before_the_first_request(self, desk: DeskType) -> None:
        seen = desk(tools=[wipe, look], interrupt_on={'wippe': True, 'look': True})
        with pytest.raises(UserError) as caught:
            await seen.start()
        assert str(caught.value) == (
            "`interrupt_on` names 'wippe', but no tool has this name. Did you mean 'wipe'? Known tools: look, wipe."
        )
        assert seen.requests == 0

    async def test_all_unknown_names_are_reported(self, desk: DeskType) -> None:
        with pytest.raises(UserError) as caught:
            await desk(interrupt_on={'wipe': True, 'xyz': False}).start()
        assert str(caught.value) == (
            "`interrupt_on` names 'wipe', but no tool has this name. "
            "`interrupt_on` names 'xyz', but no tool has this name. Known tools: none."
        )

    async def test_tool_names_of_subagents_and_hidden_tools_are_known(self, desk: DeskType) -> None:
        seen = desk(
            tools=[look],
            interrupt_on={'wipe': True},
            capabilities=lambda: [Preapproving(hidden=frozenset({'wipe'}))],
        )
        assert (await seen.start()).output == 'done'

    async def test_rule_for_a_tool_that_is_hidden_at_first_applies_once_it_is_visible(self) -> None:
        async def prepare(ctx: RunContext[str], tool_def: ToolDefinition) -> ToolDefinition | None:
            return tool_def if ctx.deps == 'admin' and len(ctx.messages) > 1 else None

        def is_for(ctx: RunContext[str], tool_def: ToolDefinition) -> bool:
            return ctx.deps == 'admin'

        prepared = Tool(wipe, prepare=prepare)
        filtered = FunctionToolset[str]([Tool(look, name='shred')], id='filtered').filtered(is_for)
        model = ScriptedModel(call('look'), [call('wipe', x='b'), call('shred')], 'done')
        agent = Agent(
            model,
            deps_type=str,
            output_type=[str, DeferredToolRequests],
            tools=[look, prepared],
            toolsets=[filtered],
            capabilities=[Approvals(interrupt_on={'wipe': True, 'shred': True})],
        )

        pending = (await agent.run('go', deps='admin')).output
        assert isinstance(pending, DeferredToolRequests)
        assert [approval.tool_name for approval in pending.approvals] == ['wipe', 'shred']
        with agent.override(model=ScriptedModel('none')):
            assert (await agent.run('go', deps='guest')).output == 'none'

    @pytest.mark.parametrize('hides', [False, True])
    async def test_name_that_a_toolset_replaces_is_unknown(self, hides: bool) -> None:
        tools = FunctionToolset[object]([wipe, look], id='tools').filtered(lambda ctx, tool_def: not hides)
        for renamed in (tools.prefixed('db'), tools.renamed({'clear': 'wipe', 'show': 'look'})):
            agent = Agent(
                'test',
                deps_type=object,
                output_type=[str, DeferredToolRequests],
                toolsets=[renamed],
                capabilities=[Approvals(interrupt_on={'wipe': True})],
            )
            with pytest.raises(UserError, match="'wipe', but no tool has this name"):
                await agent.run('go')

    async def test_output_tool_cannot_be_gated(self) -> None:
        class Answer(BaseModel):
            text: str

        agent = Agent(
            'test',
            output_type=[Answer, DeferredToolRequests],
            capabilities=[Approvals(interrupt_on={'final_result': True})],
        )
        with pytest.raises(UserError, match="'final_result'"):
            await agent.run('go')

    def test_invalid_rule_value_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"`interrupt_on\['wipe'\]` is 'yes'"):
            Approvals(interrupt_on={'wipe': 'yes'})  # type: ignore[dict-item]

    def test_approvals_cannot_be_deferred(self) -> None:
        with pytest.raises(UserError, match='defer_loading'):
            Approvals(defer_loading=True)
