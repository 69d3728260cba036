"""The error of this capability: the model repeats a call, and gives no last answer."""

from __future__ import annotations

from pydantic_deep.errors import DeepAgentError


class RepeatedCallsError(DeepAgentError):
    """The model repeated a call, was asked for a last answer without tools, and gave none that ended the run.

    Attributes:
        tool: The name of the repeated tool.
        arguments: The repeated arguments, as JSON.
        count: The number of calls with these arguments and the same result.
    """

    def __init__(self, *, tool: str, arguments: str, count: int) -> None:
        self.tool = tool
        self.arguments = arguments
        self.count = count
        super().__init__(
            f'The tool {tool!r} was called {count} times with the same arguments and result, and the model gave no last '
            'answer. Run again with the messages so far and other instructions. If the tool is called repeatedly by '
            f"design, give it the metadata `{{'polls': True}}`, or pass `LoopDetection(exclude=[{tool!r}])`."
        )
