"""Streams: what a run says as it goes, and what providers say, in one form; from and to server-sent events."""

from pydantic_deep._session_id import current_session_id, session_scope

from ._answer import APPROVAL_REQUIRED, AnswerEncoder
from ._buffer import AssetSpill, FileSpill, Spill, WindowedBuffer
from ._decode_anthropic import AnthropicDecoder
from ._decode_google import GoogleDecoder
from ._decode_openai import OpenaiDecoder
from ._encode_anthropic import AnthropicEncoder, anthropic_error, anthropic_message
from ._encode_google import GoogleEncoder, google_error, google_response
from ._encode_openai import OpenaiEncoder, openai_completion, openai_error
from ._events import (
    STREAM_EVENTS,
    Approval,
    ApprovalRequiredEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    FinishReason,
    NoticeEvent,
    Outcome,
    RunStatus,
    StartEvent,
    StatusEvent,
    StreamEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    UsageEvent,
)
from ._failures import describe_failure
from ._frames import FrameReader, FrameTooLargeError, render_frame
from ._hybrid import FunctionCall, HybridResponse, StreamingResponse
from ._json import render_event
from ._lines import NOTICE, EventEncoder, iter_lines
from ._project import project_messages
from ._protocol import Decoder, Encoder, Frame, SupportsCallRemoval
from ._run_events import RunEvents, stream_events
from ._stream import AgentStream, stream_agent
from ._whole_calls import WholeCalls

__all__ = (
    'APPROVAL_REQUIRED',
    'NOTICE',
    'STREAM_EVENTS',
    'AgentStream',
    'AnswerEncoder',
    'AnthropicDecoder',
    'AnthropicEncoder',
    'Approval',
    'ApprovalRequiredEvent',
    'AssetSpill',
    'Decoder',
    'Encoder',
    'EndEvent',
    'ErrorEvent',
    'EventEncoder',
    'FileEvent',
    'FileSpill',
    'FinishReason',
    'Frame',
    'FrameReader',
    'FrameTooLargeError',
    'FunctionCall',
    'GoogleDecoder',
    'GoogleEncoder',
    'HybridResponse',
    'NoticeEvent',
    'OpenaiDecoder',
    'OpenaiEncoder',
    'Outcome',
    'RunEvents',
    'RunStatus',
    'Spill',
    'StartEvent',
    'StatusEvent',
    'StreamEvent',
    'StreamingResponse',
    'SupportsCallRemoval',
    'TextEvent',
    'ThinkingEvent',
    'TodosEvent',
    'ToolCallDeltaEvent',
    'ToolCallEvent',
    'ToolResultEvent',
    'UsageEvent',
    'WholeCalls',
    'WindowedBuffer',
    'anthropic_error',
    'anthropic_message',
    'current_session_id',
    'describe_failure',
    'google_error',
    'google_response',
    'iter_lines',
    'openai_completion',
    'openai_error',
    'project_messages',
    'render_event',
    'render_frame',
    'session_scope',
    'stream_agent',
    'stream_events',
)
