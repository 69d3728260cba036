"""`PromptBuilder`: collects the next messages and the configuration of a conversation, immutably."""

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

from pydantic_deep._checks import check_list, check_model, check_name, check_numbers
from pydantic_deep.models import Model as ModelName

from ._delta import Config, Delta, DepsT, OutputT, assistant_message, check_instructions, user_message

_MODEL_BY_PROVIDER: Final[Mapping[str, str]] = {
    'anthropic': ModelName.CLAUDE_OPUS,
    'google': ModelName.GEMINI_PRO,
    'mistral': ModelName.MISTRAL_LARGE,
    'openai': ModelName.GPT,
}
"""The models that `provider` selects if only a provider is given."""

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
        """Run the turn to completion, and return its output."""
        ...


class PromptBuilder(Generic[DepsT, ConversationT]):
    """Collects the next messages and the configuration of a conversation. A builder is immutable: each method returns a
    new one, so any builder can be stored and reused.

    A builder holds its additions and a reference to its conversation, but no state of the conversation: when it is
    started, it continues from the current state.

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
        additions = [f'{len(self._delta.messages)} messages'] if self._delta.messages else []
        additions += [f'{len(config.instructions)} instructions'] if config.instructions else []
        additions += [f'{len(config.toolsets)} toolsets'] if config.toolsets else []
        additions += [f'model {_name(config.model)}'] if config.model is not None else []
        additions += [f'settings {dict(config.settings)}'] if config.settings else []
        return f'<PromptBuilder on {self._target!r}: {", ".join(additions) or "nothing"}>'

    def instructions(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Add instructions to those of the agent, for this conversation.

        Raises:
            EmptyMessageError: The text is empty.
        """
        check_instructions(text)
        return self._configured(Config(instructions=(text,)))

    def user(self, content: str | Sequence[UserContent]) -> PromptBuilder[DepsT, ConversationT]:
        """Add a user message: text, or text with media. The agent responds to the last user messages.

        Raises:
            EmptyMessageError: The content is empty.
        """
        return PromptBuilder(self._target, self._delta.with_message(user_message(content)))

    def assistant(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Add an assistant message, stripped of whitespace, to prime a model or to correct it.

        Raises:
            EmptyMessageError: The text is empty.
        """
        return PromptBuilder(self._target, self._delta.with_message(assistant_message(text)))

    def tools(
        self, *tools: Tool[DepsT] | ToolFuncEither[DepsT, ...] | AbstractToolset[DepsT]
    ) -> PromptBuilder[DepsT, ConversationT]:
        """Add functions or toolsets to those of the agent, from here on.

        Raises:
            ValidationError: One is neither a function nor a toolset.
        """
        check_list('tools', tools, (Tool, AbstractToolset), 'Pass functions, `Tool` objects or toolsets.')
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
        """Use this model from here on.

        Raises:
            ValidationError: The name is blank.
        """
        check_model('model', model)
        return self._configured(Config(model=model))

    def settings(self, **settings: Unpack[ModelSettings]) -> PromptBuilder[DepsT, ConversationT]:
        """Use these model settings from here on, such as `temperature=0`. Earlier settings remain in effect.

        Raises:
            ValidationError: A value is not a number where one is required, or out of bounds. `field` is the name of the
                setting.
        """
        check_numbers(settings)
        return self._configured(Config(settings=settings))

    def start(self) -> ConversationT:
        """Return the conversation with all additions. Nothing runs until it is iterated.

        This is a new conversation each time, unless the builder is the `continuation` of one. A turn that is still
        running on that conversation is stopped when the next turn starts; its messages remain.

        Raises:
            ConversationBusyError: A turn of the conversation is being awaited. Nothing has changed.
        """
        return self._target.begin(self._delta)

    async def prompt(self: PromptBuilder[DepsT, Runnable[OutputT]]) -> OutputT:
        """Start the conversation, run it to completion, and return the output: `await builder.start().run()`.

        Raises:
            NothingToAnswerError: There is no user message to respond to.
            ConversationBusyError: A turn of the conversation is being awaited. Nothing has changed.
        """
        return await self.start().run()

    def agent(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Alias of `instructions`."""
        return self.instructions(text)

    def request(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Alias of `user`."""
        return self.user(text)

    def context(self, text: str) -> PromptBuilder[DepsT, ConversationT]:
        """Alias of `user`."""
        return self.user(text)

    def provider(self, name: str) -> PromptBuilder[DepsT, ConversationT]:
        """Alias of `model`. The name of a provider alone selects its newest large model in `Model`."""
        check_name('name', name)
        return self.model(_MODEL_BY_PROVIDER.get(name, name))

    def prompt_conversation(self) -> ConversationT:
        """Alias of `start`."""
        return self.start()

    def _configured(self, config: Config[DepsT]) -> PromptBuilder[DepsT, ConversationT]:
        return PromptBuilder(self._target, self._delta.with_config(config))


def _name(model: Model | str | None) -> str:
    return f'{model.system}:{model.model_name}' if isinstance(model, Model) else repr(model)
