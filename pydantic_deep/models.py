"""Names of models, for completion in editors. They are plain strings, so a new model needs no new release."""

from __future__ import annotations

from typing import Final


class Model:
    """Names of common models, as `provider:name`. Any other name that pydantic-ai accepts is valid too.

    The documentation of each provider describes its models.
    """

    CLAUDE_HAIKU: Final = 'anthropic:claude-haiku-5-5'
    """The newest small model of Anthropic that pydantic-ai 2.62 lists."""
    CLAUDE_OPUS: Final = 'anthropic:claude-opus-5-5'
    """The newest large model of Anthropic that pydantic-ai 2.62 lists."""
    CLAUDE_SONNET: Final = 'anthropic:claude-sonnet-5-5'
    """The newest middle model of Anthropic that pydantic-ai 2.62 lists."""
    GEMINI_FLASH: Final = 'google:gemini-flash-latest'
    """The small model of Google that is newest when you use it."""
    GEMINI_PRO: Final = 'google:gemini-3.1-pro-preview'
    """The newest large model of Google that pydantic-ai 2.62 lists."""
    GPT: Final = 'openai:gpt-6.1-sol'
    """The newest large model of OpenAI that pydantic-ai 2.62 lists."""
    GPT_MINI: Final = 'openai:gpt-5.4-mini'
    """The newest small model of OpenAI that pydantic-ai 2.62 lists."""
    MISTRAL_LARGE: Final = 'mistral:mistral-large-latest'
    """The large model of Mistral that is newest when you use it."""
