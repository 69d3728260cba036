"""The error of this capability: an incomplete response."""

from __future__ import annotations

from pydantic_ai.exceptions import ModelConnectionError

from pydantic_deep.errors import DeepAgentError


class CutAnswerError(DeepAgentError, ModelConnectionError):
    """The stream of a response ended before the response was complete.

    Attributes:
        model_name: The model that generated the response.
        provider_name: The provider, by its pydantic-ai name.
    """

    def __init__(self, model_name: str, provider_name: str) -> None:
        self.provider_name = provider_name
        ModelConnectionError.__init__(
            self,
            model_name,
            f'The response of {model_name!r} is incomplete: its stream ended without a finish reason, which {provider_name!r} '
            'always sends. Retry the request. If your server has a compatible API and never sends one, remove '
            f'{provider_name!r} from `Retries(finish_reason_from=…)`.',
            phase='read',
            in_stream=True,
        )
