"""Twenty facts in 300 turns of real text stay findable, even if the summarizer omits them."""

from __future__ import annotations

import inspect
import json
import pathlib
import pydoc
import textwrap
from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, UserPromptPart
from pydantic_ai.usage import RequestUsage

from pydantic_deep._messages.summary_metadata import find_summary, replaced_messages
from pydantic_deep.summarization import Summarization, Tokens
from pydantic_deep.testing import ScriptedModel, call

pytestmark = pytest.mark.anyio

FACTS = {
    'The lease of the harbour office ends on 14 March 2031.': (
        'When does the lease of the harbour office end?',
        '14 March',
    ),
    'The pump in cellar B runs at 42.7 litres a minute.': ('How many litres a minute does the pump run at?', '42.7'),
    'Mrs. Okonkwo approves payments above 9,000 euros.': ('Who approves payments above 9,000 euros?', 'Okonkwo'),
    'The staging database listens on port 6543.': ('Which port does the staging database listen on?', '6543'),
    'Our VAT number is ATU-3391-77.': ('What is our VAT number?', 'ATU-3391-77'),
    'The blue container holds the spare turbines.': ('What does the blue container hold?', 'turbines'),
    'The client Halvorsen wants no emails on Fridays.': ('On which day does Halvorsen want no emails?', 'Fridays'),
    'Release 4 was signed with the key 0xBEEF19.': ('With which key was release 4 signed?', '0xBEEF19'),
    'The roof was measured as 313 square metres.': ('How many square metres is the roof?', '313'),
    'The password hint of the archive is the name of the first lighthouse.': (
        'What is the hint for the archive?',
        'lighthouse',
    ),
    'The invoice 2207 was paid twice.': ('Which invoice was paid twice?', '2207'),
    'Dr. Amsel is allergic to penicillin.': ('What is Dr. Amsel allergic to?', 'penicillin'),
    'The nightly backup begins at 03:25.': ('When does the nightly backup begin?', '03:25'),
    'The greenhouse sensor is the model QX-88.': ('Which model is the greenhouse sensor?', 'QX-88'),
    'The vote was 17 against 4.': ('What was the result of the vote?', '17 against 4'),
    'The spare van is parked in Kessel street.': ('In which street is the spare van parked?', 'Kessel'),
    'Tenants get a rebate of 6 percent after 5 years.': ('Which rebate do tenants get?', '6 percent'),
    'The translator Ilse Bruun knows Faroese.': ('Who knows Faroese?', 'Bruun'),
    'The elevator certificate is filed under E-1190.': ('Under what is the elevator certificate filed?', 'E-1190'),
    'The old server is called marmot.': ('What is the old server called?', 'marmot'),
}
PLANTED_EVERY = 15
MODULES = (inspect, json, pathlib, pydoc, textwrap)


def paragraphs() -> list[str]:
    """Return real text: docstrings of the standard library."""
    found = [
        inspect.cleandoc(member.__doc__)
        for module in MODULES
        for _, member in sorted(vars(module).items())
        if callable(member) and isinstance(member.__doc__, str) and len(member.__doc__) > 120
    ]
    assert len(found) > 60
    return found


async def keeps_some(messages: Sequence[ModelMessage]) -> str:
    """Summarize every third fact, including those of the previous summary."""
    text = '\n'.join(str(part) for message in messages for part in message.parts)
    return 'Facts: ' + ' '.join(fact for fact in list(FACTS)[::3] if fact in text)


async def writes_nothing(messages: Sequence[ModelMessage]) -> str:
    raise RuntimeError('out of order')


@pytest.mark.slow
@pytest.mark.parametrize('summarizer', [keeps_some, writes_nothing])
async def test_all_facts_are_in_the_summary_the_tail_or_found_by_search(
    agent_of: Callable[..., Agent[Any, Any]], watch: Any, summarizer: Any
) -> None:
    texts, facts = cycle(paragraphs()), iter(FACTS)
    model = ScriptedModel(then=lambda messages, info: next(texts), usage=RequestUsage())
    agent = agent_of(model, Summarization(trigger=Tokens(8_000), keep=Tokens(2_000), summarizer=summarizer))
    history: list[ModelMessage] = []
    for turn in range(300):
        prompt = next(facts) if turn % PLANTED_EVERY == 7 else f'And what of this?\n{next(texts)}'
        history = (await agent.run(prompt, message_history=history, event_stream_handler=watch)).all_messages()
    assert next(facts, None) is None
    assert len(watch.events) >= 5
    history = ModelMessagesTypeAdapter.validate_json(ModelMessagesTypeAdapter.dump_json(history))
    assert len(replaced_messages(history)) + len(history) - 1 == 600
    shown = '\n'.join(str(getattr(part, 'content', '')) for message in history for part in message.parts)
    summary = find_summary(history)
    assert summary is not None
    if summarizer is keeps_some:
        assert all(fact in (summary.content or '') for fact in list(FACTS)[:10:3])
    searched: list[str] = []
    for fact, (question, needle) in FACTS.items():
        if fact not in shown:
            asking = ScriptedModel(call('search_history', query=question), 'found')
            await agent.run('?', model=asking, message_history=history)
            found = str(asking.requests[1].tool_returns[-1].content)
            assert needle in found, (question, found)
            searched.append(fact)
    assert len(searched) >= 10


@pytest.mark.slow
async def test_goal_is_retained_verbatim_after_many_turns(agent_of: Callable[..., Agent[Any, Any]]) -> None:
    goal = 'Find out, for the harbour board, which of the 12 cranes needs a new gearbox; never mention prices.'
    texts = cycle(paragraphs())
    model = ScriptedModel(then=lambda messages, info: next(texts), usage=RequestUsage())
    agent = agent_of(model, Summarization(trigger=Tokens(8_000), keep=Tokens(2_000), summarizer=writes_nothing))
    history: list[ModelMessage] = []
    for turn in range(120):
        prompt = f'turn {turn}\n{next(texts)}' if turn else goal
        history = (await agent.run(prompt, message_history=history)).all_messages()
    summary = find_summary(history)
    assert summary is not None
    assert (summary.content or '').startswith(f'The user asked first:\n{goal}\n\n')
    earlier = replaced_messages(history)
    assert [part.content for part in earlier[0].parts if isinstance(part, UserPromptPart)] == [goal]
