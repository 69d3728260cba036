"""Warns if a conversation continues with an agent whose instructions differ from those that its versions were created
with.

Compares only the literal instructions of the agent itself, as in `Agent(instructions='…')`: the instructions of
capabilities change between releases, and functions return other text each time.
"""

from __future__ import annotations

import warnings
from weakref import WeakKeyDictionary

from pydantic_ai.messages import AgentInstructionSource
from pydantic_ai.models import ModelRequestParameters

from pydantic_deep.store import Store, VersionRecord

from ._settings import load_agent_instructions

_MAX_CHARS = 60
"""Maximum length of instructions in a warning."""

_warned: WeakKeyDictionary[Store, set[str]] = WeakKeyDictionary()
"""The conversations of each store for which this process has warned."""


class InstructionsWarning(UserWarning):
    """A conversation continues with an agent whose instructions differ from those its versions were created with."""


def literal_instructions_in(parameters: ModelRequestParameters) -> str:
    """Return the literal instructions of the agent in a request; empty if it has none."""
    parts = parameters.instruction_parts or ()
    own = (part for part in parts if part.id is not None and isinstance(part.id.source, AgentInstructionSource))
    return '\n\n'.join(part.content for part in own if not part.dynamic)


def warn_of_other_instructions(store: Store, record: VersionRecord, instructions: str) -> None:
    """Warn if a version was created with other literal instructions of its agent, once per conversation."""
    before = load_agent_instructions(record.model_settings)
    known = _warned.setdefault(store, set())
    if not before or before == instructions or record.conversation_id in known:
        return
    known.add(record.conversation_id)
    text = (
        f'The version {record.id} was created with the instructions {_shortened(before)}, but this agent has '
        f'{_shortened(instructions) if instructions else "none"}. Turns use those of the agent. To use the others, '
        'load the version with an agent that has `instructions=version.agent_instructions`.'
    )
    warnings.warn(text, InstructionsWarning, stacklevel=4)


def _shortened(text: str) -> str:
    return repr(text if len(text) <= _MAX_CHARS else f'{text[: _MAX_CHARS - 1]}…')
