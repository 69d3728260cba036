"""State of the response that an agent of a run, or one of its subagents, is streaming."""

from __future__ import annotations

from dataclasses import replace

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

from pydantic_deep._messages.call_ids import escape_call_id
from pydantic_deep._messages.half_characters import PieceJoiner
from pydantic_deep.streaming._events import StreamEvent, TextEvent, ThinkingEvent, ToolCallDeltaEvent

from ._part_events import args_text, call_event, result_event, thinking_events


class ResponseState:
    """Translates the response pieces of one agent of a run."""

    def __init__(self, within: str, path: tuple[str, ...]) -> None:
        """Create the state before the first response.

        Args:
            within: Prefix of the ids of its calls.
            path: Names of the subagents that lead to the agent.
        """
        self.within = within
        self.path = path
        self._texts: list[str] = []
        self._pieces = PieceJoiner()
        self._index_by_part: dict[int, int] = {}
        self._index_by_call: dict[str, int] = {}

    @property
    def text(self) -> str:
        """The text of the current response so far."""
        return ''.join(self._texts)

    def reset(self) -> None:
        """Discard the current response, which does not count."""
        self._texts.clear()
        self._pieces = PieceJoiner()
        self._index_by_part.clear()
        self._index_by_call.clear()

    def index_of(self, tool_call_id: str) -> int | None:
        """Return the position of a call in its response, if its pieces were emitted."""
        return self._index_by_call.get(tool_call_id)

    def part_events(self, event: PartStartEvent | PartDeltaEvent | PartEndEvent) -> list[StreamEvent]:
        """Return the stream events of a response piece."""
        match event:
            case PartStartEvent(index=index, part=part):
                if index == 0:
                    self.reset()
                return self._start_part(index, part)
            case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                return self._text_events(text)
            case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text, signature_delta=signature)):
                text = self._pieces.add(text or '')
                thought = ThinkingEvent(text=text, signature=signature, path=list(self.path))
                return [thought] if text or signature is not None else []
            case PartDeltaEvent(index=index, delta=ToolCallPartDelta(args_delta=args)) if args:
                return self._continue_call(index, args)
            case PartEndEvent(part=NativeToolCallPart() as call):  # the provider runs it: no other event reports it
                return [call_event(call, within=self.within, path=self.path)]
            case PartEndEvent(part=NativeToolReturnPart() as result):
                return [result_event(result, within=self.within, path=self.path)]
            case PartEndEvent(part=TextPart()):
                return self._complete_text(self._pieces.end())
            case PartEndEvent(part=ThinkingPart()):
                return thinking_events(ThinkingPart(self._pieces.end()), self.path)
            case _:
                return []

    def _start_part(self, index: int, part: object) -> list[StreamEvent]:
        match part:
            case TextPart(content=text):
                return self._text_events(text)
            case ThinkingPart():
                return thinking_events(replace(part, content=self._pieces.add(part.content)), self.path)
            case ToolCallPart():
                number = self._index_by_part[index] = len(self._index_by_part)
                self._index_by_call[part.tool_call_id] = number
                return [
                    ToolCallDeltaEvent(
                        index=number,
                        id=f'{self.within}{escape_call_id(part.tool_call_id)}',
                        name=part.tool_name,
                        args=args_text(part.args) if part.args else '',
                        path=list(self.path),
                    )
                ]
            case _:
                return []

    def _continue_call(self, index: int, args: object) -> list[StreamEvent]:
        number = self._index_by_part.get(index)
        if number is None:  # a call that the provider runs
            return []
        return [ToolCallDeltaEvent(index=number, args=args_text(args), path=list(self.path))]

    def _text_events(self, text: str) -> list[StreamEvent]:
        return self._complete_text(self._pieces.add(text))

    def _complete_text(self, text: str) -> list[StreamEvent]:
        if not text:
            return []
        self._texts.append(text)
        return [TextEvent(text=text, path=list(self.path))]
