"""The history of a task: the prompt of its turn, and the texts of the agent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress

from a2a.helpers import new_text_part
from a2a.types import Message, Role
from pydantic_ai.messages import ModelMessage, ModelResponse

from pydantic_deep._messages.loaded_skills import typed_prompt
from pydantic_deep.server._turn_task import TurnTask
from pydantic_deep.server.access._ownership import AuthorizedRun
from pydantic_deep.store import Store, VersionNotFoundError
from pydantic_deep.views import TurnLineages, prompt_text


async def load_history(store: Store, task: TurnTask) -> list[Message]:
    """Return the messages of a task, oldest first, with `[media]` for each file. Decisions are not among them."""
    texts = await _load_texts(store, task.own, task.run.version_id or task.run.base_id or '')
    return [
        Message(
            message_id=f'{task.id}-{number}',
            role=role,
            task_id=task.id,
            context_id=task.run.conversation_id,
            parts=[new_text_part(text)],
        )
        for number, (role, text) in enumerate(texts)
    ]


async def _load_texts(store: Store, own: AuthorizedRun, version_id: str) -> list[tuple[Role, str]]:
    place = own.queued if own.stored is None else own.stored.attempts[0]
    if place is not None and place.prompt is not None:  # no step has it yet
        return [(Role.ROLE_USER, typed_prompt(prompt_text(json.loads(place.prompt))))]
    with suppress(VersionNotFoundError):  # it was deleted, or the run failed before it was stored
        version = await own.agent.load('' if place is None else version_id)
        turns = TurnLineages(store=store)
        lineage = await turns.lineage(version.record)
        messages = await version.messages(start=await turns.first_message_index(lineage))
        prompt = await turns.prompt(version.record)
        answers = [(Role.ROLE_AGENT, text) for text in _texts_of(messages)]
        return answers if prompt is None else [(Role.ROLE_USER, prompt), *answers]
    return []


def _texts_of(messages: Sequence[ModelMessage]) -> list[str]:
    """Return the texts of the responses that have one."""
    texts = (message.text for message in messages if isinstance(message, ModelResponse))
    return [text for text in texts if text]
