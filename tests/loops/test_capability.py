"""Loop detection in runs: the notice, the last answer, the error, and the calls that are exempt."""

from __future__ import annotations

from typing import Any, cast

import pytest
from inline_snapshot import snapshot
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    BinaryContent,
    FunctionToolset,
    ModelRequestContext,
    ModelRetry,
    RunContext,
    ToolReturn,
    capture_run_messages,
)
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelRequest, SystemPromptPart, ToolCallPart, ToolReturnPart
from pydantic_ai.usage import RequestUsage

from pydantic_deep import DeepAgentDeps, LoopDetection, Subagent, Summarization, create_deep_agent
from pydantic_deep.budgets import Budget, Budgets
from pydantic_deep.loops import RepeatedCallsError
from pydantic_deep.loops._capability import LAST_ANSWER, NO_TOOLS, REPEATED
from pydantic_deep.loops._repetitions import NEXT_NOTICE, NOTICE
from pydantic_deep.summarization import Tokens
from pydantic_deep.testing import ScriptedModel, Step, call

from .conftest import Events, agent_of, choices, looking, returns

pytestmark = pytest.mark.anyio

LOOK = call('look')


def model_of(agent: Agent[Any, Any]) -> ScriptedModel:
    return cast('ScriptedModel', agent.model)


def notes(messages: list[ModelMessage]) -> list[str]:
    parts = [part for message in messages for part in message.parts if isinstance(part, SystemPromptPart)]
    return [part.content for part in parts]


def test_model_facing_texts() -> None:
    last_answer = LAST_ANSWER.format(tool='look', count=4)
    assert [NOTICE, NEXT_NOTICE, REPEATED.format(tool='look'), last_answer, NO_TOOLS] == snapshot(
        [
            'The same result for the third time. Try other arguments, another tool, or answer with what you know.',
            'The same result again.',
            '`look` had the same result 3 times. Try other arguments, another tool, or answer with what you know.',
            '`look` had the same result 4 times: this is your last answer, without tools. Say what is done and what is left.',
            'The run ends: no tool runs any more.',
        ]
    )


async def test_third_equal_result_is_replaced_by_a_notice() -> None:
    agent = agent_of(LOOK, LOOK, LOOK, 'stuck', tools=looking())
    result = await agent.run('go')
    assert returns(result.all_messages()) == ['nothing new', 'nothing new', NOTICE]
    assert returns(model_of(agent).requests[-1].messages) == ['nothing new', 'nothing new', NOTICE]
    assert choices(model_of(agent).requests) == [None] * 4


async def test_fourth_equal_result_ends_the_run_with_an_answer_without_tools() -> None:
    agent, events = agent_of(LOOK, LOOK, LOOK, LOOK, 'It is not there.', tools=looking()), Events()
    result = await agent.run('go', event_stream_handler=events)
    assert result.output == 'It is not there.'
    assert returns(result.all_messages())[2:] == [NOTICE, NEXT_NOTICE]
    assert notes(result.all_messages()) == [LAST_ANSWER.format(tool='look', count=4)]
    assert choices(model_of(agent).requests) == [None, None, None, None, 'none']
    assert model_of(agent).requests[-1].tool_names == ['look', 'find']
    assert events.seen == [('look', 3), ('look', 4)]


async def test_last_answer_may_be_structured() -> None:
    class Report(BaseModel):
        text: str

    steps: list[Step] = [LOOK] * 4
    agent = agent_of(*steps, call('final_result', text='stuck'), tools=looking(), output_type=Report)
    assert (await agent.run('go')).output == Report(text='stuck')


async def test_streamed_run_ends_with_an_answer() -> None:
    agent = agent_of(LOOK, LOOK, LOOK, LOOK, 'stuck', tools=looking())
    async with agent.run_stream('go') as stream:
        assert await stream.get_output() == 'stuck'


async def test_call_in_the_last_answer_does_not_run_and_raises() -> None:
    agent = agent_of(*[call('look', key='a')] * 4, call('find'), 'never asked', tools=looking())
    with capture_run_messages() as messages, pytest.raises(RepeatedCallsError) as raised:
        await agent.run('go')
    error = raised.value
    assert (error.tool, error.arguments, error.count) == ('look', '{"key": "a"}', 4)
    assert str(error) == snapshot(
        "The tool 'look' was called 4 times with the same arguments and result, and the model gave no last answer. Run again with the messages so far and other instructions. If the tool is called repeatedly by design, give it the metadata `{'polls': True}`, or pass `LoopDetection(exclude=['look'])`."
    )
    assert returns(messages)[-1] == NO_TOOLS
    assert model_of(agent).remaining == 1


async def test_rejected_last_answer_raises() -> None:
    agent = agent_of(LOOK, LOOK, LOOK, LOOK, 'no', 'never asked', tools=looking())

    @agent.output_validator
    def _(output: str) -> str:
        raise ModelRetry('Not like this.')

    with pytest.raises(RepeatedCallsError):
        await agent.run('go')
    assert model_of(agent).remaining == 1


async def test_prompt_during_the_last_answer_starts_again() -> None:
    """A message of the user that arrives late is answered with tools."""

    class Late(AbstractCapability[Any]):
        id = 'late'
        is_sent = False

        async def after_model_request(self, ctx: RunContext[Any], **options: Any) -> Any:
            if not self.is_sent and ctx.run_step == 5:
                Late.is_sent = True
                ctx.enqueue('Look again.', priority='when_idle')
            return options['response']

    model = ScriptedModel(LOOK, LOOK, LOOK, LOOK, 'stuck', LOOK, 'still stuck')
    agent = Agent[Any, Any](model, capabilities=[Late(), LoopDetection()], toolsets=[looking()])
    result = await agent.run('go')
    assert result.output == 'still stuck'
    assert returns(result.all_messages())[-1] == 'nothing new'
    assert choices(model.requests)[4:] == ['none', None, None]


async def test_order_and_whitespace_of_arguments_do_not_matter() -> None:
    toolset = FunctionToolset[Any]()

    @toolset.tool_plain
    async def add(a: int, b: int) -> int:
        return a + b

    texts = ('{"a": 1, "b": 2}', '{"b":2,"a":1}', '{ "a":1, "b":2 }')
    agent = agent_of(*[ToolCallPart('add', text) for text in texts], 'done', tools=toolset)
    assert returns((await agent.run('go')).all_messages()) == ['3', '3', NOTICE]


async def test_other_arguments_are_other_calls() -> None:
    agent = agent_of(*[call('look', key=key) for key in 'abc'], 'done', tools=looking())
    assert NOTICE not in returns((await agent.run('go')).all_messages())


@pytest.mark.parametrize(
    ('error', 'outcome'),
    [(ToolFailed('No such file.'), 'failed'), (ModelRetry('No such file.'), 'retried')],
)
async def test_equal_failures_are_a_loop(error: Exception, outcome: str) -> None:
    agent = agent_of(LOOK, LOOK, LOOK, 'done', tools=looking(error))
    messages = (await agent.run('go')).all_messages()
    parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.outcome for part in parts] == [outcome, outcome, 'failed']
    assert [part.content for part in parts] == ['No such file.', 'No such file.', NOTICE]


@pytest.mark.parametrize('step', [call('nope'), ToolCallPart('look', '{"key": '), call('look', key=[1])])
async def test_invalid_calls_are_a_loop(step: ToolCallPart) -> None:
    """They keep their results, which say how to call the tool."""
    agent, events = agent_of(step, step, step, step, 'gave up', tools=looking(), retries=10), Events()
    result = await agent.run('go', event_stream_handler=events)
    tool = step.tool_name
    assert notes(result.all_messages()) == [REPEATED.format(tool=tool), LAST_ANSWER.format(tool=tool, count=4)]
    assert len({*returns(result.all_messages())}) == 1
    assert events.seen == [(tool, 3), (tool, 4)]


async def test_crash_of_a_tool_is_a_loop() -> None:
    agent = create_deep_agent(ScriptedModel(LOOK, LOOK, LOOK, 'done'), toolsets=[looking(OSError('The disk failed.'))])
    messages = (await agent.run('go', deps=DeepAgentDeps())).all_messages()
    assert returns(messages) == ['OSError: The disk failed.', 'OSError: The disk failed.', NOTICE]


async def test_alternating_calls_without_a_new_result_are_a_loop() -> None:
    pair = [call('look', key='a'), call('look', key='b')]
    agent = agent_of(*pair * 4, 'stuck', tools=looking())
    messages = (await agent.run('go')).all_messages()
    assert returns(messages)[4:] == ['nothing new', NOTICE, NOTICE, NEXT_NOTICE]
    assert notes(messages) == [LAST_ANSWER.format(tool='look', count=4)]


async def test_new_result_of_another_call_starts_again() -> None:
    agent = agent_of(*[LOOK, LOOK, call('find')] * 5, 'done', tools=looking())
    messages = (await agent.run('go')).all_messages()
    assert returns(messages) == ['nothing new', 'nothing new', 'finding 1'] + [
        text for number in range(2, 6) for text in ('nothing new', 'nothing new', f'finding {number}')
    ]


async def test_calls_of_one_response_count_once() -> None:
    agent = agent_of([LOOK] * 5, [LOOK] * 2, [LOOK] * 2, 'done', tools=looking())
    assert returns((await agent.run('go')).all_messages()) == ['nothing new'] * 7 + [NOTICE] * 2


async def test_results_of_the_turn_before_do_not_count() -> None:
    agent = agent_of(LOOK, LOOK, 'first', LOOK, LOOK, 'second', tools=looking())
    first = await agent.run('go')
    second = await agent.run('go', message_history=first.all_messages())
    assert returns(second.all_messages()) == ['nothing new'] * 4


async def test_two_runs_share_no_counts() -> None:
    agent = agent_of(LOOK, LOOK, 'first', LOOK, LOOK, 'second', tools=looking())
    assert NOTICE not in returns((await agent.run('go')).all_messages())
    assert NOTICE not in returns((await agent.run('go')).all_messages())


async def test_tools_that_poll_are_exempt_by_their_metadata() -> None:
    agent = agent_of(*[LOOK] * 9, 'done', tools=looking(metadata={'polls': True}))
    assert returns((await agent.run('go')).all_messages()) == ['nothing new'] * 9


async def test_new_result_of_a_polling_tool_starts_again() -> None:
    toolset, states = looking(), iter('abcde')

    @toolset.tool_plain(metadata={'polls': True})
    async def poll() -> str:
        return next(states)

    agent = agent_of(*[[LOOK, call('poll')]] * 5, 'done', tools=toolset)
    assert NOTICE not in returns((await agent.run('go')).all_messages())


async def test_excluded_tools_are_exempt() -> None:
    model = ScriptedModel(*[LOOK] * 9, 'done')
    agent = create_deep_agent(model, toolsets=[looking()], capabilities=[LoopDetection(exclude=['look'])])
    assert returns((await agent.run('go', deps=DeepAgentDeps())).all_messages()) == ['nothing new'] * 9


def test_exclude_is_not_a_single_name() -> None:
    with pytest.raises(TypeError, match=r"`exclude` is 'look'. Pass a list: `\['look'\]`."):
        LoopDetection(exclude='look')


async def test_flag_disables_loop_detection_also_in_subagents() -> None:
    child = Subagent('child', 'Looks.', model=ScriptedModel(*[LOOK] * 9, 'child done'), toolsets=[looking()])
    model = ScriptedModel(*[LOOK] * 9, call('task', subagent='child', description='look'), 'done')
    agent = create_deep_agent(model, toolsets=[looking()], subagents=[child], loop_detection=False)
    result = await agent.run('go', deps=DeepAgentDeps())
    assert returns(result.all_messages()) == [*['nothing new'] * 9, 'child done']


async def test_subagents_have_counts_of_their_own() -> None:
    child = Subagent('child', 'Looks.', model=ScriptedModel(LOOK, LOOK, LOOK, LOOK, 'stuck'), toolsets=[looking()])
    model = ScriptedModel(LOOK, LOOK, call('task', subagent='child', description='look'), LOOK, LOOK, 'done')
    agent = create_deep_agent(model, toolsets=[looking()], subagents=[child])
    result = await agent.run('go', deps=DeepAgentDeps())
    assert returns(result.all_messages()) == ['nothing new', 'nothing new', 'stuck', 'nothing new', 'nothing new']
    assert returns(cast('ScriptedModel', child.model).requests[-1].messages)[2:] == [NOTICE, NEXT_NOTICE]


async def test_subagent_that_loops_on_is_a_failed_result() -> None:
    child = Subagent('child', 'Looks.', model=ScriptedModel(*[LOOK] * 5), toolsets=[looking()])
    model = ScriptedModel(call('task', subagent='child', description='look'), 'done')
    result = await create_deep_agent(model, subagents=[child]).run('go', deps=DeepAgentDeps())
    assert returns(result.all_messages())[0].startswith(
        "The subagent 'child' failed: RepeatedCallsError: The tool 'look' was called 4 times"
    )


async def test_output_tools_are_exempt() -> None:
    class Report(BaseModel):
        text: str

    steps: list[Step] = [call('final_result')] * 6
    agent = agent_of(
        *steps, call('final_result', text='ok'), tools=looking(), output_type=Report, retries={'output': 9}
    )
    assert (await agent.run('go')).output == Report(text='ok')


async def test_notice_keeps_the_metadata_of_the_result() -> None:
    metadata = {'exit_code': 1}
    agent = agent_of(LOOK, LOOK, LOOK, LOOK, 'done', tools=looking(ToolReturn('same', metadata=metadata)))
    messages = (await agent.run('go')).all_messages()
    *_, notice, last = (part for message in messages for part in message.parts if isinstance(part, ToolReturnPart))
    assert (notice.content, last.content) == (NOTICE, NEXT_NOTICE)
    assert notice.metadata == metadata


async def test_changing_image_of_a_tool_is_a_new_result() -> None:
    toolset, images = FunctionToolset[Any](), iter(b'abcd')

    @toolset.tool_plain
    async def screenshot() -> ToolReturn:
        image = BinaryContent(bytes([next(images)]), media_type='image/png')
        return ToolReturn('Here it is.', content=[image])

    agent = agent_of(*[call('screenshot')] * 4, 'done', tools=toolset)
    assert returns((await agent.run('go')).all_messages()) == ['Here it is.'] * 4


async def test_equal_image_of_a_tool_is_a_loop() -> None:
    image = BinaryContent(b'a', media_type='image/png')
    agent = agent_of(LOOK, LOOK, LOOK, 'done', tools=looking(ToolReturn('Here it is.', content=[image])))
    assert returns((await agent.run('go')).all_messages())[-1] == NOTICE


async def test_large_equal_results_are_a_loop() -> None:
    """Each is stored in a file of its own, with a path that the model gets."""
    agent = create_deep_agent(ScriptedModel(LOOK, LOOK, LOOK, 'done'), toolsets=[looking('x' * 100_000)])
    first, second, third = returns((await agent.run('go', deps=DeepAgentDeps())).all_messages())
    assert '/offload/' in first
    assert first != second
    assert third == NOTICE


async def test_results_that_can_be_read_only_once_are_new() -> None:
    toolset = FunctionToolset[Any]()

    @toolset.tool_plain
    async def look() -> Any:
        return iter('ab')

    agent = agent_of(*[LOOK] * 5, 'done', tools=toolset)
    assert NOTICE not in returns((await agent.run('go')).all_messages())


async def test_results_that_a_capability_has_removed_do_not_count() -> None:
    """The model has to look again."""

    class Forget(AbstractCapability[Any]):
        id = 'forget'

        async def before_model_request(
            self, ctx: RunContext[Any], request_context: ModelRequestContext
        ) -> ModelRequestContext:
            request_context.messages = [request_context.messages[0], request_context.messages[-1]]
            return request_context

    model = ScriptedModel(*[LOOK] * 6, 'done')
    agent = Agent[Any, Any](model, capabilities=[Forget(), LoopDetection()], toolsets=[looking()])
    assert returns((await agent.run('go')).all_messages()) == ['nothing new'] * 6


async def test_results_before_a_summary_do_not_count() -> None:
    usage = RequestUsage(input_tokens=500, output_tokens=10)
    summarization = Summarization(trigger=Tokens(400), keep=Tokens(20), summarizer=lambda messages: _summary())
    model = ScriptedModel(*[call('look', key='a')] * 6, 'done', usage=usage)
    agent = Agent[Any, Any](model, capabilities=[LoopDetection(), summarization], toolsets=[looking('long ' * 100)])
    await agent.run('go')
    assert all(NOTICE not in returns(request.messages) for request in model.requests)


async def _summary() -> str:
    return 'It looked.'


async def test_budget_and_loop_that_end_together_instruct_once() -> None:
    model = ScriptedModel(LOOK, LOOK, LOOK, LOOK, 'stuck')
    budgets = Budgets(run=Budget(requests=5), warn_at=1)
    agent = Agent[Any, Any](model, capabilities=[budgets, LoopDetection()], toolsets=[looking()])
    assert len(notes((await agent.run('go')).all_messages())) == 1


async def test_works_without_a_request_in_the_history() -> None:
    """Instructions alone start a run."""
    agent = agent_of('done', tools=looking(), instructions='Say done.')
    assert isinstance((await agent.run()).all_messages()[0], ModelRequest)
