"""Gated calls of any tool from any provider: execution, results and messages to the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from pydantic_ai import ApprovalRequired, FunctionToolset, RunContext, Tool, ToolApproved, ToolDefinition, UserError
from pydantic_ai.capabilities import AbstractCapability, HandleDeferredToolCalls, WrapperCapability
from pydantic_ai.exceptions import SkipToolValidation
from pydantic_ai.messages import ToolCallPart
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool

from pydantic_deep import create_deep_agent
from pydantic_deep._messages.deferred_metadata import KEY
from pydantic_deep.approvals import ApprovalRule, Approvals, Approve, Deny, Edit, Respond, answer_approvals
from pydantic_deep.testing import ScriptedModel

from .conftest import GATED, DeskType, Preapproving, look, ran, wipe, wiping

pytestmark = pytest.mark.anyio

Make = Callable[..., Any]


@pytest.fixture(autouse=True)
def nothing_ran() -> None:
    ran.clear()


LOOKING = ToolCallPart('look', {}, tool_call_id='c2')


class TestDecisions:
    async def test_approved_call_runs_once_with_the_shown_arguments(self, desk: DeskType) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        assert (seen.pending[0].tool, seen.pending[0].arguments, ran) == ('wipe', {'x': 'a'}, [])
        await seen.answer(Approve())
        assert (ran, seen.results, seen.told, seen.output) == (['a'], {'c1': ('success', 'wiped a')}, [], 'done')

    async def test_denied_call_does_not_run_and_the_model_gets_the_reason(self, desk: DeskType) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.answer(Deny('we still need a'))
        assert (ran, seen.results) == ([], {'c1': ('denied', 'we still need a')})

    @pytest.mark.parametrize('content', ['it is gone', {'x': [1, None]}, None, [], 3])
    async def test_response_is_delivered_unchanged(self, desk: DeskType, content: Any) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.answer(Respond(content))
        assert (ran, seen.results) == ([], {'c1': ('success', content)})
        assert seen.metadata == [{KEY: {'kind': 'answered'}}]

    async def test_mixed_response_runs_each_call_exactly_once(self, desk: DeskType) -> None:
        response = [wiping('a', 'c1'), LOOKING, wiping('b', 'c3'), wiping('c', 'c4')]
        seen = await desk(response, tools=[wipe, look], interrupt_on=GATED).start()
        assert (seen.ids, ran) == (['c1', 'c3', 'c4'], ['look'])
        await seen.answer(Approve(), Deny('no'), Respond('kept'))
        assert ran == ['look', 'a']
        assert seen.requests == 2
        assert seen.results == {
            'c1': ('success', 'wiped a'),
            'c2': ('success', 'seen'),
            'c3': ('denied', 'no'),
            'c4': ('success', 'kept'),
        }

    async def test_unanswered_calls_stay_pending_and_do_not_run(self, desk: DeskType, fake_previews: Make) -> None:
        files = fake_previews({})
        seen = await desk(
            [wiping('a', 'c1'), wiping('b', 'c2')], tools=[wipe], interrupt_on=GATED, capabilities=lambda: [files]
        ).start()
        before = seen.pending
        asked = files.asked
        await seen.answer(None, None)
        assert (seen.pending, ran, seen.requests, files.asked) == (before, [], 1, asked)
        await seen.answer(None, Approve())
        assert (seen.pending, ran, seen.requests) == (before[:1], ['b'], 1)
        await seen.answer(Approve())
        assert (seen.output, ran, seen.requests) == ('done', ['b', 'a'], 2)

    async def test_call_in_the_next_step_needs_its_own_approval(self, desk: DeskType) -> None:
        seen = await desk(wiping('a', 'c1'), wiping('a', 'c2'), tools=[wipe], interrupt_on=GATED).start()
        assert (await seen.answer(Approve())).ids == ['c2']
        assert ran == ['a']

    async def test_plain_approval_of_pydantic_ai_runs_the_call(self, desk: DeskType) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.resume(DeferredToolResults(approvals={'c1': ToolApproved()}))
        assert ran == ['a']

    async def test_handler_within_the_run_can_answer_some_calls(self, desk: DeskType) -> None:
        async def handle(ctx: object, requests: DeferredToolRequests) -> DeferredToolResults:
            return answer_approvals(requests, {'c1': Approve()})

        seen = await desk(
            [wiping('a', 'c1'), wiping('b', 'c2')],
            tools=[wipe],
            interrupt_on=GATED,
            capabilities=lambda: [HandleDeferredToolCalls(handle)],
        ).start()
        assert (seen.ids, ran) == (['c2'], ['a'])


class TestWhoeverProvidesTheTool:
    async def test_third_party_toolset_is_gated(self, desk: DeskType) -> None:
        class Server(AbstractToolset[Any]):
            """A toolset like that of an MCP server: no function, arguments as a dict."""

            @property
            def id(self) -> str | None:
                return 'server'

            async def get_tools(self, ctx: RunContext[Any]) -> dict[str, ToolsetTool[Any]]:
                functions = await FunctionToolset([wipe]).get_tools(ctx)
                return {name: replace(tool, toolset=self) for name, tool in functions.items()}

            async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: object, tool: object) -> object:
                ran.append((name, tool_args))
                return 'served'

        seen = await desk(wiping(), toolset=Server().prefixed('far'), interrupt_on={'far_wipe': True}).start()
        assert seen.results['c1'][0] == 'retried'
        seen = await desk(
            ToolCallPart('far_wipe', {'x': 'a'}, tool_call_id='c1'),
            toolset=Server().prefixed('far'),
            interrupt_on={'far_wipe': True},
        ).start()
        assert (seen.ids, ran) == (['c1'], [])
        await seen.answer(Approve())
        assert (ran, seen.results) == ([('wipe', {'x': 'a'})], {'c1': ('success', 'served')})

    async def test_third_party_capability_is_gated(self, desk: DeskType) -> None:
        class ThirdParty(AbstractCapability[Any]):
            def get_toolset(self) -> AbstractToolset[Any]:
                return FunctionToolset([wipe])

        seen = await desk(wiping(), capabilities=lambda: [ThirdParty()], interrupt_on=GATED).start()
        assert (seen.ids, ran) == (['c1'], [])
        await seen.answer(Approve())
        assert ran == ['a']

    async def test_tool_that_requires_approval_has_a_preview_and_can_stay_pending(
        self, desk: DeskType, fake_previews: Make
    ) -> None:
        def save(path: str) -> str:
            ran.append(path)
            return 'saved'

        calls = [ToolCallPart('save', {'path': f'/{id}'}, tool_call_id=id) for id in ('a', 'b')]
        seen = await desk(
            calls,
            toolset=FunctionToolset([Tool(save, requires_approval=True), look]),
            capabilities=lambda: [fake_previews({'/a': 'digest'})],
        ).start()
        assert [each.preview and each.preview.files for each in seen.pending] == [{'/a': 'digest'}, {'/b': None}]
        await seen.answer(None, Approve())
        assert (seen.ids, ran) == (['a'], ['/b'])
        await seen.answer(Approve())
        assert ran == ['/b', '/a']

    @pytest.mark.parametrize(
        ('rule', 'asks'),
        [
            (False, True),
            (ApprovalRule(when=lambda args: False), True),
            (ApprovalRule(allow=('git *',)), False),
            (ApprovalRule(allow=('ls *',), when=lambda args: False), True),
        ],
    )
    async def test_only_an_allow_pattern_overrides_requires_approval(
        self, desk: DeskType, rule: bool | ApprovalRule, asks: bool
    ) -> None:
        def execute(command: str) -> str:
            return 'ok'

        seen = await desk(
            ToolCallPart('execute', {'command': 'git log'}, tool_call_id='c'),
            toolset=FunctionToolset([Tool(execute, requires_approval=True)]),
            interrupt_on={'execute': rule},
        ).start()
        assert bool(seen.ids) == asks

    async def test_tool_that_raises_approval_required_keeps_its_metadata_and_can_stay_pending(
        self, desk: DeskType, fake_previews: Make
    ) -> None:
        def save(ctx: RunContext[Any], path: str) -> str:
            if not ctx.tool_call_approved:
                raise ApprovalRequired(metadata={'reason': 'careful'})
            ran.append(path)
            return 'saved'

        calls = [ToolCallPart('save', {'path': f'/{id}'}, tool_call_id=id) for id in ('a', 'b')]
        seen = await desk(calls, tools=[save], capabilities=lambda: [fake_previews({})]).start()
        assert [each.preview and each.preview.files for each in seen.pending] == [{'/a': None}, {'/b': None}]
        assert seen.output.metadata['a']['reason'] == 'careful'
        await seen.answer(None, Approve())
        assert (seen.ids, ran) == (['a'], ['/b'])
        assert seen.output.metadata['a']['reason'] == 'careful'

    async def test_third_party_guard_can_require_approval(self, desk: DeskType) -> None:
        class Guard(AbstractCapability[Any]):
            async def before_tool_execute(
                self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
            ) -> dict[str, Any]:
                if not ctx.tool_call_approved:
                    raise ApprovalRequired
                return args

        seen = await desk([wiping('a', 'c1'), wiping('b', 'c2')], tools=[wipe], capabilities=lambda: [Guard()]).start()
        await seen.answer(None, Approve())
        assert (seen.ids, ran) == (['c1'], ['b'])

    async def test_tool_that_requires_approval_again_runs_with_the_edited_arguments(self, desk: DeskType) -> None:
        def wipe(ctx: RunContext[Any], x: str) -> str:
            ran.append(x)
            if len(ran) < 2:
                raise ApprovalRequired
            return f'wiped {x}'

        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED).start()
        await seen.answer(Edit({'x': 'b'}))
        assert (seen.pending[0].arguments, ran) == ({'x': 'b'}, ['b'])
        await seen.answer(None)
        await seen.answer(Approve())
        assert (ran, seen.results) == (['b', 'b'], {'c1': ('success', 'wiped b')})
        assert seen.told == ['A person changed the arguments of the call c1 of wipe to: {"x": "b"}']

    async def test_tool_with_forged_approval_metadata_fails(self, desk: DeskType) -> None:
        def wipe(x: str) -> str:
            raise ApprovalRequired(metadata={KEY: {'kind': 'junk'}})

        seen = await desk(wiping(), tools=[wipe]).start()
        [returned] = seen.returns
        assert returned.outcome == 'failed'
        assert str(returned.content).startswith("The tool 'wipe' requires approval with invalid metadata")

    async def test_skipped_validation_does_not_skip_the_gate(self, desk: DeskType) -> None:
        class Skips(AbstractCapability[Any]):
            async def before_tool_validate(
                self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: Any
            ) -> Any:
                raise SkipToolValidation({'x': 'skipped'})

        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED, capabilities=lambda: [Skips()]).start()
        assert (seen.ids, ran) == (['c1'], [])
        await seen.answer(None)
        assert (seen.ids, ran) == (['c1'], [])
        await seen.answer(Approve())
        assert ran == ['skipped']

    async def test_preview_shows_arguments_rewritten_by_other_capabilities(
        self, desk: DeskType, fake_previews: Make
    ) -> None:
        class Rewrites(AbstractCapability[Any]):
            async def after_tool_validate(
                self, ctx: RunContext[Any], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, Any]
            ) -> dict[str, Any]:
                return {'path': f'/rewritten{args["path"]}'}

        def save(path: str) -> str:
            return 'saved'

        seen = await desk(
            ToolCallPart('save', {'path': '/a'}, tool_call_id='c'),
            tools=[save],
            interrupt_on={'save': True},
            capabilities=lambda: [fake_previews({}), Rewrites()],
        ).start()
        assert list(seen.pending[0].preview.files) == ['/rewritten/a']

    async def test_ungated_call_is_unaffected(self, desk: DeskType, fake_previews: Make) -> None:
        files = fake_previews({})
        seen = await desk(LOOKING, tools=[look, wipe], interrupt_on=GATED, capabilities=lambda: [files]).start()
        assert (seen.output, ran, files.asked) == ('done', ['look'], 0)


class TestNeighbours:
    async def test_preapproved_call_runs_without_asking(self, desk: DeskType) -> None:
        seen = await desk(wiping(), tools=[wipe], interrupt_on=GATED, capabilities=lambda: [Preapproving()]).start()
        assert (seen.ids, ran) == ([], ['a'])

    async def test_preapproval_overrides_requires_approval(self, desk: DeskType) -> None:
        toolset = FunctionToolset([Tool(wipe, requires_approval=True)])
        seen = await desk(wiping(), toolset=toolset, capabilities=lambda: [Preapproving()]).start()
        assert (seen.ids, ran) == ([], ['a'])

    async def test_preapproval_does_not_override_a_deny_rule(self, desk: DeskType) -> None:
        def execute(command: str) -> str:
            ran.append(command)
            return 'ok'

        seen = await desk(
            ToolCallPart('execute', {'command': 'rm x'}, tool_call_id='c'),
            tools=[execute],
            interrupt_on={'execute': ApprovalRule(deny=['rm *'])},
            capabilities=lambda: [Preapproving()],
        ).start()
        assert (ran, seen.results['c'][0]) == ([], 'failed')

    @pytest.mark.parametrize(
        ('path', 'effect', 'asks'),
        [
            ('/skills/a/SKILL.md', 'write', True),
            ('/skills', 'write', True),
            ('/', 'write', True),
            ('/skills2/a', 'write', False),
            ('/skills/a/SKILL.md', 'read', False),
            ('/skills/cafe\u0301', 'write', True),
        ],
    )
    async def test_writes_to_protected_files_always_ask(
        self, desk: DeskType, fake_previews: Make, path: str, effect: str, asks: bool
    ) -> None:
        def save(path: str) -> str:
            ran.append(path)
            return 'saved'

        seen = await desk(
            ToolCallPart('save', {'path': path}, tool_call_id='c'),
            toolset=FunctionToolset([Tool(save, metadata={'effect': effect})]),
            capabilities=lambda: [fake_previews({}), Preapproving(protected=('/skills',))],
        ).start()
        assert (bool(seen.ids), bool(ran)) == (asks, not asks)

    @pytest.mark.parametrize('effect', ['write', 'read'])
    async def test_preapproval_and_allow_do_not_cover_protected_files(
        self, desk: DeskType, fake_previews: Make, effect: str
    ) -> None:
        def save(path: str) -> str:
            return 'saved'

        seen = await desk(
            ToolCallPart('save', {'path': '/skills/a'}, tool_call_id='c'),
            toolset=FunctionToolset([Tool(save, metadata={'effect': effect})]),
            interrupt_on={'save': ApprovalRule(allow=['**']) if effect == 'write' else True},
            capabilities=lambda: [fake_previews({}), Preapproving(protected=('/skills',))],
        ).start()
        assert seen.ids == ['c']

    @pytest.mark.parametrize(('effect', 'asks'), [('write', True), ('read', False), ('external', False)])
    async def test_write_without_a_preview_asks_if_files_are_protected(
        self, desk: DeskType, effect: str, asks: bool
    ) -> None:
        def save(path: str) -> str:
            return 'saved'

        seen = await desk(
            ToolCallPart('save', {'path': 'anything'}, tool_call_id='c'),
            toolset=FunctionToolset([Tool(save, metadata={'effect': effect})]),
            capabilities=lambda: [Preapproving(protected=('/skills',))],
        ).start()
        assert bool(seen.ids) is asks

    async def test_wrapped_capabilities_are_found(self, desk: DeskType) -> None:
        seen = await desk(
            wiping(), tools=[wipe], interrupt_on=GATED, capabilities=lambda: [WrapperCapability(Preapproving())]
        ).start()
        assert (seen.ids, ran) == ([], ['a'])


class TestSeveral:
    async def test_two_approvals_of_one_agent_gate_the_union(self, desk: DeskType) -> None:
        other: dict[str, bool | ApprovalRule] = {'wipe': False, 'look': True}
        response = [wiping(), LOOKING]
        for first, second in ((GATED, other), (other, GATED)):
            seen = await desk(
                response,
                tools=[wipe, look],
                interrupt_on=first,
                capabilities=lambda second=second: [Approvals(interrupt_on=second)],
            ).start()
            assert seen.ids == ['c1', 'c2']

    async def test_conflicting_rules_of_one_agent_are_refused(self, desk: DeskType) -> None:
        seen = desk(
            tools=[wipe], interrupt_on=GATED, capabilities=lambda: [Approvals(interrupt_on={'wipe': ApprovalRule()})]
        )
        with pytest.raises(UserError, match='different rules'):
            await seen.start()

    async def test_parent_and_child_ask_once_with_their_common_decisions(self, desk: DeskType) -> None:
        parent = Approvals(interrupt_on={'wipe': ApprovalRule(decisions=('approve', 'edit')), 'look': True})
        seen = await desk(
            [wiping(), LOOKING],
            tools=[wipe, look],
            interrupt_on={'wipe': ApprovalRule(decisions=('deny', 'edit')), 'look': False},
            capabilities=lambda: [parent.for_subagent()],
        ).start()
        assert [(each.tool, each.decisions) for each in seen.pending] == [
            ('wipe', ('edit',)),
            ('look', ('approve', 'edit', 'deny', 'respond')),
        ]
        await seen.answer(Edit({'x': 'b'}), Approve())
        assert (sorted(map(str, ran)), seen.output) == (['b', 'look'], 'done')

    async def test_deny_is_offered_if_parent_and_child_share_no_decision(self, desk: DeskType) -> None:
        parent = Approvals(interrupt_on={'wipe': ApprovalRule(decisions=('approve',))})
        seen = await desk(
            wiping(),
            tools=[wipe],
            interrupt_on={'wipe': ApprovalRule(decisions=('respond',))},
            capabilities=lambda: [parent.for_subagent()],
        ).start()
        assert [each.decisions for each in seen.pending] == [('deny',)]

    async def test_preapproval_in_a_child_does_not_override_the_parent_rule(self, desk: DeskType) -> None:
        for own in (GATED, {}):
            seen = await desk(
                wiping(),
                tools=[wipe],
                interrupt_on=own,
                capabilities=lambda: [Approvals(interrupt_on=GATED).for_subagent(), Preapproving()],
            ).start()
            assert (seen.ids, ran) == (['c1'], [])

    async def test_preapproval_in_a_child_does_not_override_requires_approval(self, desk: DeskType) -> None:
        seen = await desk(
            wiping(),
            toolset=FunctionToolset([Tool(wipe, requires_approval=True)]),
            approvals=False,
            capabilities=lambda: [Approvals().for_subagent(), Preapproving()],
        ).start()
        assert (seen.ids, ran) == (['c1'], [])

    async def test_child_does_not_check_names_and_grandchildren_inherit_rules(self, desk: DeskType) -> None:
        inherited = Approvals(interrupt_on={'wipe': True, 'unknown here': True}).for_subagent().for_subagent()
        assert inherited.id is None
        seen = await desk(wiping(), tools=[wipe], approvals=False, capabilities=lambda: [inherited]).start()
        assert (seen.ids, ran) == (['c1'], [])
        await seen.answer(Approve())
        assert ran == ['a']

    async def test_concurrent_runs_of_one_agent_share_no_state(self, desk: DeskType) -> None:
        shared = desk(wiping(), tools=[wipe], interrupt_on=GATED)
        agent = shared.agent()
        first, second = await agent.run('one'), await agent.run('two')
        approved = answer_approvals(first.output, {'c1': Approve()})
        await agent.run(conversation=first.conversation, deferred_tool_results=approved)
        assert ran == ['a']
        denied = answer_approvals(second.output, {'c1': Deny()})
        await agent.run(conversation=second.conversation, deferred_tool_results=denied)
        assert ran == ['a']


@pytest.mark.parametrize('given', [['write_file'], 'write_file', True])
def test_interrupt_on_must_be_a_mapping(given: Any) -> None:
    with pytest.raises(UserError) as refused:
        create_deep_agent(ScriptedModel(), interrupt_on=given)
    assert str(refused.value) == (
        f"`interrupt_on` is {given!r}. Pass a mapping of tool names: `{{'write_file': True}}`."
    )
