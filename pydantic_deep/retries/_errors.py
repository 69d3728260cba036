"""The error of the room: an answer that was cut."""

from __future__ import annotations

from pydantic_ai.exceptions import ModelConnectionError

from pydantic_deep.errors import DeepAgentError


class CutAnswerError(DeepAgentError, ModelConnectionError):
    """The stream of an answer ended before the answer did.

    Attributes:
        model_name: The model that was answering.
        provider_name: Whose wire the stream came over.
    """

    def __init__(self, model_name: str, provider_name: str) -> None:
        self.provider_name = provider_name
        ModelConnectionError.__init__(
            self,
            model_name,
            f'The answer of {model_name!r} was cut: its stream ended without a finish reason, which {provider_name!r} '
            'always sends. Ask again. If your server speaks this API and never sends one, leave '
            f'{provider_name!r} out of `Retries(finish_reason_from=…)`.',
            phase='read',
            in_stream=True,
        )

    def __reduce__(self) -> tuple[type[CutAnswerError], tuple[str, str]]:
        return type(self), (self.model_name, self.provider_name)
