"""Streams: one union of events for runs and provider streams, and conversion from and to server-sent events.

This package contains the events, the decoder and encoder protocols, and server-sent events. The `runs` subpackage
produces the events of our runs; `providers` implements the formats of providers.
"""

from pydantic_deep._session_id import current_session_id, session_scope

from ._buffer import AssetSpill, FileSpill, Spill, WindowedBuffer
from ._events import (
    STREAM_EVENTS,
    Approval,
    ApprovalAnswerEvent,
    ApprovalRequiredEvent,
    BudgetEvent,
    EndEvent,
    ErrorEvent,
    FileEvent,
    FinishReason,
    NoticeEvent,
    Outcome,
    RetriedEvent,
    RunStatus,
    StartEvent,
    StatusEvent,
    StreamEvent,
    SummarizedEvent,
    TextEvent,
    ThinkingEvent,
    TodosEvent,
    ToolCallDeltaEvent,
    ToolCallEvent,
    ToolResultEvent,
    TurnWorkspace,
    UsageEvent,
)
from ._failures import EXPECTED_ERRORS, describe_failure, dump_failure, load_failure, suspended_event
from ._frames import FrameReader, FrameTooLargeError, render_frame, render_frames
from ._json import render_event
from ._lines import NOTICE, CallBatches, EventEncoder, EventGroup, event_frame, groups_of, iter_lines, selected_groups
from ._log_entries import EntryEncoder, decode_entry, encode_entry, frame_of, is_selected, text_of_entry
from ._protocol import Decoder, Encoder, Frame, SupportsCallRemoval
from .providers._answer import APPROVAL_REQUIRED, Answer, AnswerEncoder, read_answer
from .providers._anthropic_decoder import AnthropicDecoder
from .providers._anthropic_encoder import AnthropicEncoder, anthropic_error, anthropic_message
from .providers._google_decoder import GoogleDecoder
from .providers._google_encoder import GoogleEncoder, google_error, google_response
from .providers._hybrid_response import FunctionCall, HybridResponse, StreamingResponse
from .providers._openai_decoder import OpenaiDecoder
from .providers._openai_encoder import OpenaiEncoder, openai_completion, openai_error
from .providers._responses_encoder import ResponsesEncoder, openai_response
from .runs._agent_stream import AgentStream, stream_agent
from .runs._capability_events import capability_event
from .runs._events_from_messages import project_messages
from .runs._part_events import approval_of, output_text
from .runs._run_events import RunEvents, stream_events
from .runs._whole_calls import WholeCalls

__all__ = (
    'APPROVAL_REQUIRED',
    'EXPECTED_ERRORS',
    'NOTICE',
    'STREAM_EVENTS',
    'AgentStream',
    'Answer',
    'AnswerEncoder',
    'AnthropicDecoder',
    'AnthropicEncoder',
    'Approval',
    'ApprovalAnswerEvent',
    'ApprovalRequiredEvent',
    'AssetSpill',
    'BudgetEvent',
    'CallBatches',
    'Decoder',
    'Encoder',
    'EndEvent',
    'EntryEncoder',
    'ErrorEvent',
    'EventEncoder',
    'EventGroup',
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
    'ResponsesEncoder',
    'RetriedEvent',
    'RunEvents',
    'RunStatus',
    'Spill',
    'StartEvent',
    'StatusEvent',
    'StreamEvent',
    'StreamingResponse',
    'SummarizedEvent',
    'SupportsCallRemoval',
    'TextEvent',
    'ThinkingEvent',
    'TodosEvent',
    'ToolCallDeltaEvent',
    'ToolCallEvent',
    'ToolResultEvent',
    'TurnWorkspace',
    'UsageEvent',
    'WholeCalls',
    'WindowedBuffer',
    'anthropic_error',
    'anthropic_message',
    'approval_of',
    'capability_event',
    'current_session_id',
    'decode_entry',
    'describe_failure',
    'dump_failure',
    'encode_entry',
    'event_frame',
    'frame_of',
    'google_error',
    'google_response',
    'groups_of',
    'is_selected',
    'iter_lines',
    'load_failure',
    'openai_completion',
    'openai_error',
    'openai_response',
    'output_text',
    'project_messages',
    'read_answer',
    'render_event',
    'render_frame',
    'render_frames',
    'selected_groups',
    'session_scope',
    'stream_agent',
    'stream_events',
    'suspended_event',
    'text_of_entry',
)
