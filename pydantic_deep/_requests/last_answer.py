"""The last request of a run that a limit ends: the model answers without tools."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import cast

from pydantic_ai import ModelRequestContext, RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import SystemPromptPart
from pydantic_ai.settings import ModelSettings


@dataclass(kw_only=True)
class LastAnswer:
    """Whether a run has reached its last request, for one capability that ends runs."""

    refusal: str
    """The result of a tool call that the model makes nevertheless."""
    is_announced: bool = field(default=False, init=False)
    """Whether the model was asked for its last answer."""

    def announce(self, ctx: RunContext[object], request_context: ModelRequestContext, text: str) -> bool:
        """Make this the last request. Tools remain declared, as the cached prefix contains them, but cannot be called.

        Args:
            ctx: The run.
            request_context: The request, in `before_model_request`.
            text: The message to the model, which a later run does not get. It is omitted if another capability, or that
                of a parent run, has already announced the last request.

        Returns:
            Whether this capability had not announced it before.
        """
        settings: dict[str, object] = {**(request_context.model_settings or {})}
        is_known = self.is_announced or settings.get('tool_choice') == 'none'
        request_context.model_settings = cast('ModelSettings', {**settings, 'tool_choice': 'none'})
        if not is_known:
            ctx.enqueue(SystemPromptPart(text, scope='request'))
        is_first, self.is_announced = not self.is_announced, True
        return is_first

    def refuse_call(self) -> None:
        """Fail a tool call of the last response. Call it in `after_tool_validate`.

        Raises:
            ToolFailed: The last request was announced.
        """
        if self.is_announced:
            raise ToolFailed(self.refusal)
