"""Warns where a conversation goes on under an agent of other instructions than those that its versions were made with.

Only the literal instructions of the agent itself are compared, those of `Agent(instructions='…')`: the instructions of
capabilities change with each release of them, and functions return something else each time.
"""

from __future__ import annotations

import warnings
from weakref import WeakKeyDictionary

from pydantic_ai.messages import AgentInstructionSource
from pydantic_ai.models import ModelRequestParameters

from pydantic_deep.store import Store, VersionRecord

from ._settings import load_agent_instructions

_MAX_CHARS = 60
"""How much of either instructions a warning quotes."""

_warned: WeakKeyDictionary[Store, set[str]] = WeakKeyDictionary()
"""The conversations of each store that this process has warned of."""


class InstructionsWarning(UserWarning):
    """A conversation goes on under an agent whose instructions are not those that its versions were made with."""


def literal_instructions_in(parameters: ModelRequestParameters) -> str:
    """Return the literal instructions of the agent that sends a request; empty if it has none."""
    parts = parameters.instruction_parts or ()
    own = (part for part in parts if part.id is not None and isinstance(part.id.source, AgentInstructionSource))
    return '\n\n'.join(part.content for part in own if not part.dynamic)


def warn_of_other_instructions(store: Store, record: VersionRecord, instructions: str) -> None:
    """Warn if a version was made with other literal instructions of its agent, once for each conversation."""
    before = load_agent_instructions(record.model_settings)
    known = _warned.setdefault(store, set())
    if not before or before == instructions or record.conversation_id in known:
        return
    known.add(record.conversation_id)
    text = (
        f'The version {record.id} was made with the instructions {_shortened(before)}, and this agent has '
        f'{_shortened(instructions) if instructions else "none"}. Go on to adopt those of the agent. To keep the others, '
        'load the version under an agent with `instructions=version.agent_instructions`.'
    )
    warnings.warn(text, InstructionsWarning, stacklevel=4)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _MAX_CHARS else f'{text[: _MAX_CHARS - 1]}…')
