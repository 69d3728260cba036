"""Metadata of deferred tool requests and of their results: the models, and nothing else.

The metadata is in `DeferredToolRequests` and `DeferredToolResults` under one key, so that a paused run is stored in the
serialized `Conversation` alone. Approvals write the requests and answers of calls; subagents write those of
delegations, which nest the requests of a child and of its own children.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_ai import DeferredToolRequests, DeferredToolResults

from pydantic_deep._text.escapes import visible
from pydantic_deep._text.line_diff import DiffView

KEY = 'pydantic_deep'
"""Our key in the metadata. Other keys are left as they are."""

DELEGATES = 'pydantic_deep_delegates'
"""The key in a tool's metadata that says that its calls may be delegations. Answers of a delegation are nothing to the
calls of any other tool."""

DecisionKind: TypeAlias = Literal['approve', 'edit', 'deny', 'respond']
"""An answer to a pending call; `respond` gives its result in place of the tool."""

DECISIONS: tuple[DecisionKind, ...] = ('approve', 'edit', 'deny', 'respond')
"""All of them."""


class _Model(BaseModel):
    """Built when it is first used: most programs import it and pause never."""

    model_config = ConfigDict(defer_build=True)


class Preview(_Model):
    """What a call would do, for a person to read."""

    model_config = ConfigDict(frozen=True)

    kind: Literal['diff', 'command', 'call']
    """What a file would become, a command line, or nothing more than the arguments."""
    text: str = ''
    """The command, or sentences about what the call would do."""
    diff: DiffView | None = None
    """What would change in a file, as typed lines. Never a diff as text: nothing reads that."""
    notice: str = ''
    """What the reader must know first, such as that the call may have run already."""
    files: dict[str, str | None] = {}
    """The canonical paths that it touches, each with the digest of the contents that the preview was made from;
    `None` where there was no file."""
    binds: bool = False
    """Whether an approval holds only as long as the files are as shown: true of what replaces whole contents."""
    failure: str | None = None
    """Why the tool would refuse the call, as the model is told it; `None` for a call that would run. A call that would
    fail is not put before a person: it fails at once with this text."""

    def __str__(self) -> str:
        """Return what a reader is shown, as text that is escaped."""
        diff = '' if self.diff is None else str(self.diff)
        return '\n'.join(filter(None, [visible(self.notice), visible(self.text), diff]))


MAY_HAVE_RUN = 'This call may have run before the process died. Approve it to run it (again), or deny it.'
"""What a person is told of a call that was started and never ended."""


MAY_HAVE_RUN_AND_FAILS = 'This call may have run before the process died. It was not run again, because it would fail:'
"""What the model is told of such a call if it would fail now, as an edit does whose text is replaced already."""


CHANGED_PROTECTED = 'This run changed files that programs of this machine run or obey: '
"""How a notice begins that names the protected files that the run has changed."""


def with_notice(preview: Preview | None, notice: str = MAY_HAVE_RUN) -> Preview:
    """Return a preview that says first what a person must know, such as that the call may have run."""
    base = preview or Preview(kind='call')
    before = [line for line in base.notice.split('\n') if line not in ('', notice)]
    return base.model_copy(update={'notice': '\n'.join([notice, *before])})


def without_notice(preview: Preview | None) -> Preview | None:
    """Return a preview as it was before `with_notice`."""
    if preview is None or not preview.notice:
        return preview
    plain = preview.model_copy(update={'notice': ''})
    return None if plain == Preview(kind='call') else plain


class CallRequest(_Model):
    """A pending tool call."""

    kind: Literal['call'] = 'call'
    preview: Preview | None = None
    decisions: tuple[DecisionKind, ...] = DECISIONS
    """What may be answered."""
    edited: dict[str, JsonValue] | None = None
    """The arguments that a person gave it before it asked once more; `None` if they are those of the model."""


class DelegationRequest(_Model):
    """A suspended subagent: everything that another process needs to resume it."""

    kind: Literal['delegation'] = 'delegation'
    subagent: str
    """Its name."""
    conversation_id: str
    """The conversation of the subagent."""
    messages: JsonValue
    """Its history, as `dump_history` writes it."""
    requests: DeferredToolRequests
    """Its pending calls; their metadata may contain delegations in turn."""
    state: dict[str, JsonValue] = {}
    """What else the subagents capability needs to resume: todos, files of a fork, usage."""
    edited: dict[str, JsonValue] | None = None
    """The arguments that a person gave the delegating call; `None` if they are those of the model. Approvals set it."""


class StillPending(_Model):
    """No answer yet: the call stays pending, with the request that it had."""

    kind: Literal['held'] = 'held'
    request: dict[str, Any]
    """The metadata of the request, all keys."""


class Approved(_Model):
    """A person said yes."""

    kind: Literal['approved'] = 'approved'
    request: dict[str, Any]
    """The metadata of the request: what the person was shown."""
    shown: str | None = None
    """A digest of the tool and the arguments that the person was shown; approvals write and compare it."""


class Edited(_Model):
    """A person changed the arguments."""

    kind: Literal['edited'] = 'edited'
    request: dict[str, Any]
    """The metadata of the request: what the person was shown."""
    args: dict[str, JsonValue]
    """The arguments to run with."""
    shown: str | None = None
    """A digest of the tool and these arguments; approvals write and compare it."""


class Responded(_Model):
    """A person answered in the place of the tool."""

    kind: Literal['responded'] = 'responded'
    content: JsonValue


class DelegationAnswers(_Model):
    """Answers to the pending calls of a subagent; some may be `StillPending`."""

    kind: Literal['answers'] = 'answers'
    request: DelegationRequest
    results: DeferredToolResults


Request: TypeAlias = Annotated[CallRequest | DelegationRequest, Field(discriminator='kind')]
Answer: TypeAlias = Annotated[
    StillPending | Approved | Edited | Responded | DelegationAnswers, Field(discriminator='kind')
]


def add_notice(requests: DeferredToolRequests, notice: str) -> None:
    """Put a notice first in the preview of each pending call, those of subagents included."""
    for call in requests.approvals:
        metadata = requests.metadata.get(call.tool_call_id)
        request = parse_request(metadata)
        if isinstance(request, CallRequest):
            request = request.model_copy(update={'preview': with_notice(request.preview, notice)})
        elif isinstance(request, DelegationRequest):
            add_notice(request.requests, notice)
        else:
            continue
        requests.metadata[call.tool_call_id] = {**(metadata or {}), **dump(request)}


def dump(
    value: CallRequest | DelegationRequest | StillPending | Approved | Edited | Responded | DelegationAnswers,
) -> dict[str, Any]:
    """Return metadata that carries the value."""
    return {KEY: value.model_dump(mode='json')}


def parse_request(metadata: Mapping[str, Any] | None) -> CallRequest | DelegationRequest | None:
    """Return what the metadata of a request carries; `None` if nothing of ours.

    Raises:
        ValueError: There is something under our key, and it is not what this release writes.
    """
    return _parse(_request_adapter(), metadata)


def parse_answer(
    metadata: Mapping[str, Any] | None,
) -> StillPending | Approved | Edited | Responded | DelegationAnswers | None:
    """Return what the metadata of an answer carries; `None` if nothing of ours.

    Raises:
        ValueError: There is something under our key, and it is not what this release writes.
    """
    return _parse(_answer_adapter(), metadata)


@cache
def _request_adapter() -> TypeAdapter[CallRequest | DelegationRequest]:
    return TypeAdapter(Request)


@cache
def _answer_adapter() -> TypeAdapter[StillPending | Approved | Edited | Responded | DelegationAnswers]:
    return TypeAdapter(Answer)


def _parse(adapter: TypeAdapter[Any], metadata: Mapping[str, Any] | None) -> Any:
    value = (metadata or {}).get(KEY)
    if value is None:
        return None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ValueError(f'The metadata of a pending call is not what pydantic-deep writes: {error}') from error
