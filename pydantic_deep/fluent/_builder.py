"""`PromptBuilder`: what is to be said next, and how, gathered immutably and aimed at a conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Generic, Protocol, cast

from pydantic_ai import Tool
from pydantic_ai.messages import UserContent
from pydantic_ai.models import KnownModelName, Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolFuncEither
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset
from typing_extensions import TypeVar, Unpack

from pydantic_deep._checks import check_model, check_name, check_numbers
from pydantic_deep.models import Model as ModelName

from ._delta import Config, Delta, DepsT, OutputT, assistant_message, check_instructions, user_message

_MODEL_BY_PROVIDER: Final[Mapping[str, str]] = {
    'anthropic': ModelName.CLAUDE_OPUS,
    'google': ModelName.GEMINI_PRO,
    'mistral': ModelName.MISTRAL_LARGE,
    'openai': ModelName.GPT,
}
"""What `provider` asks, where it is told no model."""

DepsInvT = TypeVar('DepsInvT')
OutputCoT = TypeVar('OutputCoT', covariant=True)
ConversationT = TypeVar('ConversationT', covariant=True, default=object)


class Target(Protocol[DepsInvT, ConversationT]):
    """A conversation, or a factory of conversations."""

    def begin(self, delta: Delta[DepsInvT]) -> ConversationT:
        """Return the conversation, with the messages and the configuration of a delta."""
        ...


class Runnable(Protocol[OutputCoT]):
    """A conversation that can run its next turn."""

    async def run(self) -> OutputCoT:
        """Run the turn to its end, and return its output."""
        ...


class PromptBuilder(Generic[DepsT, ConversationT]):
    """What is to be said next, and how. It never changes: each method returns another builder, so any of them can be
    kept and used again.

    It holds what it adds and a reference to its conversation, nothing of the conversation itself: whenever it is
    started, it goes on from where the conversation is then.

    ```python
    from pydantic_ai import Agent

    from pydantic_deep.fluent import prompt
    from pydantic_deep.testing import ScriptedModel

    agent = Agent(ScriptedModel('Blue.', 'Because of Rayleigh scattering.'))


    async def main() -> None:
        conversation = prompt(agent).instructions('Be brief.').user('What colour is the sky?').start()
        async for message in conversation:
            print(message.parts[0])
        print(await conversation.continuation.user('Why?').prompt())
    ```
    """

    __slots__ = ('_delta', '_target')

    def __init__(self, target: Target[DepsT, ConversationT], delta: Delta[DepsT] | None = None) -> None:
        self._target = target
        self._delta: Delta[DepsT] = delta or Delta()

    def __repr__(self) -> str:
        config = self._delta.config
        said = [f'{len(self._delta.messages)} messages'] if self._delta.messages else []
        said += [f'{len(config.instructions)} instructions'] if config.instructions else []
        said += [f'{len(config.toolsets)} toolsets'] if config.toolsets else []
        said += [f'model {_name(config.model)}'] if config.model is not None else []
        said += [f'settings {dict(config.settings)}'] if config.settings else []
        return f'<PromptBuilder on {self._target!r}: {", ".join(said) or "nothing"}>'

    def instructions(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Tell the agent something besides its own instructions, in this conversation.

        Raises:
            EmptyMessageError: The text is empty.
        """
        check_instructions(text)
        return self._configured(Config(instructions=(text,)))

    def user(self, content: str | Sequence[UserContent]) -> PromptBuilder[DepsT, ConversationT]:
        """Let the user say something: text, or text with media. What is said last is answered.

        Raises:
            EmptyMessageError: Nothing is said.
        """
        return PromptBuilder(self._target, self._delta.with_message(user_message(content)))

    def assistant(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Let the assistant have said something, without the spaces around it: to prime a model, or to correct it.

        Raises:
            EmptyMessageError: The text is empty.
        """
        return PromptBuilder(self._target, self._delta.with_message(assistant_message(text)))

    def tools(
        self, *tools: Tool[DepsT] | ToolFuncEither[DepsT, ...] | AbstractToolset[DepsT]
    ) -> PromptBuilder[DepsT, ConversationT]:
        """Let the model call functions or toolsets besides those of the agent, from here on."""
        functions: list[Tool[DepsT] | ToolFuncEither[DepsT, ...]] = []
        toolsets: list[AbstractToolset[DepsT]] = []
        for tool in tools:
            if isinstance(tool, AbstractToolset):
                toolsets.append(cast('AbstractToolset[DepsT]', tool))
            else:
                functions.append(tool)
        if functions:
            toolsets.insert(0, FunctionToolset[DepsT](functions))
        return self._configured(Config(toolsets=tuple(toolsets)))

    def model(self, model: Model | KnownModelName | str) -> PromptBuilder[DepsT, ConversationT]:
        """Ask this model from here on.

        Raises:
            ValidationError: Its name is blank.
        """
        check_model('model', model)
        return self._configured(Config(model=model))

    def settings(self, **settings: Unpack[ModelSettings]) -> PromptBuilder[DepsT, ConversationT]:
        """Ask with these settings from here on, such as `temperature=0`; those of before stay.

        Raises:
            ValidationError: One is no number where it must be, or out of bounds. Its `field` is the name.
        """
        check_numbers(settings)
        return self._configured(Config(settings=settings))

    def start(self) -> ConversationT:
        """Return the conversation, with all of this said and set. Nothing runs before it is iterated over.

        A new conversation each time, unless the builder is the `continuation` of one. What that was still doing is
        stopped when the new turn begins; what it has done by then stays.

        Raises:
            ConversationBusyError: Somebody is waiting for a turn of the conversation. Nothing has changed.
        """
        return self._target.begin(self._delta)

    async def prompt(self: PromptBuilder[DepsT, Runnable[OutputT]]) -> OutputT:
        """Start, run to the end, and return the output: `await builder.start().run()`.

        Raises:
            NothingToAnswerError: Nothing was said by the user.
            ConversationBusyError: Somebody is waiting for a turn of the conversation. Nothing has changed.
        """
        return await self.start().run()

    def agent(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Return `instructions(text)`."""
        return self.instructions(text)

    def request(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Return `user(text)`."""
        return self.user(text)

    def context(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Return `user(text)`."""
        return self.user(text)

    def provider(self, name: str) -> PromptBuilder[DepsT, ConversationT]:
        """Return `model(name)`; the name of a provider alone stands for its newest large model of `Model`."""
        check_name('name', name)
        return self.model(_MODEL_BY_PROVIDER.get(name, name))

    def prompt_conversation(self) -> ConversationT:
        """Return `start()`."""
        return self.start()

    def _configured(self, config: Config[DepsT]) -> PromptBuilder[DepsT, ConversationT]:
        return PromptBuilder(self._target, self._delta.with_config(config))


def _name(model: Model | str | None) -> str:
    return f'{model.system}:{model.model_name}' if isinstance(model, Model) else repr(model)
