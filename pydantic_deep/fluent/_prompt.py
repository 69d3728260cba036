"""`prompt`: start a new conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Generic, overload

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.models import KnownModelName, Model

from pydantic_deep._checks import CREATE_AGENT, check_model, check_names, check_object, check_store
from pydantic_deep.agent import create_deep_agent
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.store import Store
from pydantic_deep.versions import VersionedAgent

from ._builder import PromptBuilder
from ._conversation import Conversation
from ._delta import Delta, DepsT, OutputT


@dataclass(frozen=True, kw_only=True, repr=False)
class Origin(Generic[DepsT, OutputT]):
    """A factory of new conversations. Each start creates one."""

    agent: AbstractAgent[DepsT, OutputT] | VersionedAgent[DepsT, OutputT]
    deps: DepsT | None
    store: Store | None
    conversation_id: str | None

    def __repr__(self) -> str:
        return f'a new conversation with {self.agent.name!r}'

    def begin(self, delta: Delta[DepsT]) -> Conversation[DepsT, OutputT]:
        """Return a new conversation with a delta applied."""
        return Conversation(
            agent=self.agent, deps=self.deps, store=self.store, conversation_id=self.conversation_id
        ).begin(delta)


@overload
def prompt(
    agent: Model | KnownModelName | str,
    *,
    deps: DeepAgentDeps | None = None,
    store: Store | None = None,
    conversation_id: str | None = None,
) -> PromptBuilder[DeepAgentDeps, Conversation[DeepAgentDeps, str]]: ...


@overload
def prompt(
    agent: AbstractAgent[DepsT, OutputT] | VersionedAgent[DepsT, OutputT],
    *,
    deps: DepsT | None = None,
    store: Store | None = None,
    conversation_id: str | None = None,
) -> PromptBuilder[DepsT, Conversation[DepsT, OutputT]]: ...


def prompt(
    agent: AbstractAgent[Any, Any] | VersionedAgent[Any, Any] | Model | str,
    *,
    deps: Any = None,
    store: Store | None = None,
    conversation_id: str | None = None,
) -> PromptBuilder[Any, Conversation[Any, Any]]:
    """Return a builder for conversations with an agent.

    ```text
    answer = await prompt(agent).user('What is 1 + 2?').prompt()

    conversation = prompt(agent, store=store).instructions('Be brief.').user('Summarise sales.csv').start()
    async for message in conversation:
        ...
    print(conversation.output)
    ```

    Args:
        agent: The agent; a `VersionedAgent` with its store; or a model, for a deep agent with default settings.
        deps: The deps of all turns, shared by all conversations of this builder; by default new ones for each
            conversation.
        store: The store for versions. Without one, a conversation lasts as long as its object.
        conversation_id: The id of the conversation, which is continued if the store contains it.
    """
    if isinstance(agent, str):
        check_model('model', agent)
    check_names(conversation_id=conversation_id)
    check_object('agent', agent, (AbstractAgent, VersionedAgent, Model, str), CREATE_AGENT)
    if store is not None:
        check_store(store)
    if isinstance(agent, (Model, str)):
        agent = create_deep_agent(agent)
    return PromptBuilder(Origin(agent=agent, deps=deps, store=store, conversation_id=conversation_id))
