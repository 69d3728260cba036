"""Metadata of deferred tool requests and their results: the models and their serialization.

The metadata is stored in `DeferredToolRequests` and `DeferredToolResults` under one key, so the serialized
`Conversation` contains everything about a paused run. Approvals write the requests and answers of calls; subagents
write those of delegations, which contain the requests of the subagent and of its own subagents.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_ai import DeferredToolRequests, DeferredToolResults

from pydantic_deep._text.escapes import visible
from pydantic_deep._text.line_diff import DiffView

from .form_fields import FormField

KEY = 'pydantic_deep'
"""Our key in the metadata. Other keys are not changed."""

DELEGATES = 'pydantic_deep_delegates'
"""The key in a tool's metadata that marks its calls as possible delegations. Other tools ignore the answers of a
delegation.
"""

DecisionKind: TypeAlias = Literal['approve', 'edit', 'deny', 'respond']
"""The kind of an answer to a pending call. `respond` supplies a result in place of the tool's."""

DECISIONS: tuple[DecisionKind, ...] = ('approve', 'edit', 'deny', 'respond')
"""All kinds of decision."""

QUESTION_DECISIONS: tuple[DecisionKind, ...] = ('deny', 'respond')
"""Decisions on a question: it can be declined or answered."""


class _Model(BaseModel):
    """A model that is built on first use: most programs import it and never pause."""

    model_config: ClassVar[ConfigDict] = ConfigDict(defer_build=True)


class Preview(_Model):
    """The effect of a call, for a person to review."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True)

    kind: Literal['diff', 'command', 'call', 'question']
    """`diff`: changes of a file; `command`: a command line; `call`: only the arguments; `question`: the call asks a
    person, who can only answer or decline.
    """
    text: str = ''
    """The command, the question, or a description of the effect."""
    choices: tuple[str, ...] = ()
    """Suggested answers to a question. Other answers are possible."""
    fields: tuple[FormField, ...] = ()
    """The fields of a question that has a form. The answer is an object with their values, or a text."""
    has_form: bool = False
    """Whether an answer has to fit the fields. A question with a form without fields asks for consent."""
    link: str = ''
    """The address that a question asks the person to open; empty if there is none."""
    diff: DiffView | None = None
    """The changes of a file, as typed lines, so that no program has to parse a diff."""
    notice: str = ''
    """A warning to show first, for example that the call may have run already."""
    files: dict[str, str | None] = {}
    """The canonical paths of affected files, with the digest of the content on which the preview is based; `None` if
    there was no file.
    """
    binds: bool = False
    """Whether an approval is valid only while the files are unchanged: true for calls that replace whole files."""
    failure: str | None = None
    """The error for the model if the tool would refuse the call; `None` for a call that would run. A call that would
    fail is not shown to a person: it fails immediately with this text.
    """

    def __str__(self) -> str:
        """Return the preview as escaped text."""
        diff = '' if self.diff is None else str(self.diff)
        return '\n'.join(filter(None, [visible(self.notice), visible(self.text), diff]))


MAY_HAVE_RUN = 'This call may have run before the process died. Approve it to run it (again), or deny it.'
"""The warning to a person about a call that was started and never ended."""


MAY_HAVE_RUN_AND_FAILS = 'This call may have run before the process died. It was not run again, because it would fail:'
"""The text for the model if such a call would fail now, for example an edit of text that has been replaced already."""


CHANGED_PROTECTED = 'This run changed files that programs of this machine run or obey: '
"""First words of the warning that lists the protected files which the run has changed."""


def with_notice(preview: Preview | None, notice: str = MAY_HAVE_RUN) -> Preview:
    """Return a preview with a warning at its start, for example that the call may have run."""
    base = preview or Preview(kind='call')
    before = [line for line in base.notice.split('\n') if line not in ('', notice)]
    return base.model_copy(update={'notice': '\n'.join([notice, *before])})


def without_notice(preview: Preview | None) -> Preview | None:
    """Return the preview that `with_notice` extended."""
    if preview is None or not preview.notice:
        return preview
    plain = preview.model_copy(update={'notice': ''})
    return None if plain == Preview(kind='call') else plain


class CallRequest(_Model):
    """A pending tool call."""

    kind: Literal['call'] = 'call'
    preview: Preview | None = None
    decisions: tuple[DecisionKind, ...] = DECISIONS
    """The decisions that are allowed."""
    edited: dict[str, JsonValue] | None = None
    """The arguments that a person supplied before the call was deferred again; `None` for those of the model."""
    has_begun: bool = False
    """Whether the tool itself asks in the middle of the call: it receives the answer, and continues."""


class DelegationRequest(_Model):
    """A suspended subagent, with all data that another process needs to resume it."""

    kind: Literal['delegation'] = 'delegation'
    subagent: str
    """The name of the subagent."""
    conversation_id: str
    """The conversation of the subagent."""
    messages: JsonValue
    """The history of the subagent, as `dump_history` returns it."""
    requests: DeferredToolRequests
    """The subagent's pending calls; their metadata may contain further delegations."""
    state: dict[str, JsonValue] = {}
    """Further state of the subagents capability: todos, files of a fork, usage."""
    edited: dict[str, JsonValue] | None = None
    """The arguments that a person supplied for the delegating call; `None` for those of the model. Set by approvals."""


class StillPending(_Model):
    """No answer yet: the call stays pending, with its original request."""

    kind: Literal['held'] = 'held'
    request: dict[str, Any]
    """The metadata of the request, with all keys."""


class Approved(_Model):
    """A person approved the call."""

    kind: Literal['approved'] = 'approved'
    request: dict[str, Any]
    """The metadata of the request that the person was shown."""
    shown: str | None = None
    """Digest of the tool and arguments that the person was shown; approvals write and compare it."""


class Edited(_Model):
    """A person edited the arguments."""

    kind: Literal['edited'] = 'edited'
    request: dict[str, Any]
    """The metadata of the request that the person was shown."""
    args: dict[str, JsonValue]
    """The arguments to run with."""
    shown: str | None = None
    """Digest of the tool and these arguments; approvals write and compare it."""


class Responded(_Model):
    """A person answered in place of the tool."""

    kind: Literal['responded'] = 'responded'
    content: JsonValue


class Answered(_Model):
    """A person answered, or declined to answer, the question of a tool in the middle of its call."""

    kind: Literal['answered'] = 'answered'
    request: dict[str, Any]
    """The metadata of the request that the person was shown."""
    content: JsonValue = None
    """The answer."""
    is_declined: bool = False
    """Whether the person declined to answer."""


class DelegationAnswers(_Model):
    """Answers to the pending calls of a subagent; some may be `StillPending`."""

    kind: Literal['answers'] = 'answers'
    request: DelegationRequest
    results: DeferredToolResults


Request: TypeAlias = Annotated[CallRequest | DelegationRequest, Field(discriminator='kind')]
Answer: TypeAlias = Annotated[
    StillPending | Approved | Edited | Responded | Answered | DelegationAnswers, Field(discriminator='kind')
]


def add_notice(requests: DeferredToolRequests, notice: str) -> None:
    """Add a warning to the start of the preview of each pending call, including calls of subagents."""
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


def dump(value: Request | Answer) -> dict[str, Any]:
    """Return metadata with the value under our key."""
    return {KEY: value.model_dump(mode='json')}


def parse_request(metadata: Mapping[str, Any] | None) -> CallRequest | DelegationRequest | None:
    """Return our value in the metadata of a request; `None` if there is none.

    Raises:
        ValueError: The value under our key has another format than this release writes.
    """
    return _parse(_request_adapter(), metadata)


def has_begun(metadata: Mapping[str, Any] | None) -> bool:
    """Return whether the metadata of a request is that of a tool which asks in the middle of its call."""
    value: object = (metadata or {}).get(KEY)
    return isinstance(value, dict) and cast('dict[str, object]', value).get('has_begun') is True


def parse_answer(metadata: Mapping[str, Any] | None) -> Answer | None:
    """Return our value in the metadata of an answer; `None` if there is none.

    Raises:
        ValueError: The value under our key has another format than this release writes.
    """
    return _parse(_answer_adapter(), metadata)


@cache
def _request_adapter() -> TypeAdapter[CallRequest | DelegationRequest]:
    return TypeAdapter(Request)


@cache
def _answer_adapter() -> TypeAdapter[Answer]:
    return TypeAdapter(Answer)


def _parse(adapter: TypeAdapter[Any], metadata: Mapping[str, Any] | None) -> Any:
    value = (metadata or {}).get(KEY)
    if value is None:
        return None
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise ValueError(f'The metadata of a pending call has an unknown format: {error}') from error
