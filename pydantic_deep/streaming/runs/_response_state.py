"""State of the response that an agent of a run, or one of its subagents, is streaming."""

from __future__ import annotations

from pydantic_ai import PartDeltaEvent, PartEndEvent, PartStartEvent
from pydantic_ai.messages import (
    NativeToolCallPart,
    NativeToolReturnPart,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolCallPartDelta,
)

from pydantic_deep.streaming._events import StreamEvent, TextEvent, ThinkingEvent, ToolCallDeltaEvent

from ._part_events import args_text, call_event, escaped_id, result_event, thinking_events


class ResponseState:
    """Translates the pieces of the responses of one agent of a run."""

    def __init__(self, within: str, path: tuple[str, ...]) -> None:
        """Create the state before the first response.

        Args:
            within: What stands before the ids of its calls.
            path: The subagents that lead to it.
        """
        self.within = within
        self.path = path
        self._said: list[str] = []
        self._index_by_part: dict[int, int] = {}
        self._index_by_call: dict[str, int] = {}

    @property
    def said(self) -> str:
        """The text of the response that is being given."""
        return ''.join(self._said)

    def forget(self) -> None:
        """Forget the response that is being given: it does not count."""
        self._said.clear()
        self._index_by_part.clear()
        self._index_by_call.clear()

    def index_of(self, tool_call_id: str) -> int | None:
        """Return which call of its response a call is, if its pieces were told."""
        return self._index_by_call.get(tool_call_id)

    def tell_part(self, event: PartStartEvent | PartDeltaEvent | PartEndEvent) -> list[StreamEvent]:
        """Return what a piece of a response tells."""
        match event:
            case PartStartEvent(index=index, part=part):
                if index == 0:
                    self.forget()
                return self._begin(index, part)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return self._say(text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text, signature_delta=signature)):
                thought = ThinkingEvent(text=text or '', signature=signature, path=list(self.path))
                return [thought] if text or signature is not None else []
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=args)) if args:
                return self._go_on(index, args)
            case PartEndEvent(part=NativeToolCallPart() as call):  # the provider runs it: there is no other event of it
                return [call_event(call, within=self.within, path=self.path)]
            case PartEndEvent(part=NativeToolReturnPart() as result):
                return [result_event(result, within=self.within, path=self.path)]
            case _:
                return []

    def _begin(self, index: int, part: object) -> list[StreamEvent]:
        match part:
            case TextPart(content=text):
                return self._say(text)
            case ThinkingPart():
                return thinking_events(part, self.path)
            case ToolCallPart():
                number = self._index_by_part[index] = len(self._index_by_part)
                self._index_by_call[part.tool_call_id] = number
                return [
                    ToolCallDeltaEvent(
                        index=number,
                        id=f'{self.within}{escaped_id(part.tool_call_id)}',
                        name=part.tool_name,
                        args=args_text(part.args) if part.args else '',
                        path=list(self.path),
                    )
                ]
            case _:
                return []

    def _go_on(self, index: int, args: object) -> list[StreamEvent]:
        number = self._index_by_part.get(index)
        if number is None:  # of a call that the provider runs
            return []
        return [ToolCallDeltaEvent(index=number, args=args_text(args), path=list(self.path))]

    def _say(self, text: str) -> list[StreamEvent]:
        if not text:
            return []
        self._said.append(text)
        return [TextEvent(text=text, path=list(self.path))]
