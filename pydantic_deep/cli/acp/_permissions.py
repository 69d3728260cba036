"""Pending calls as permission requests, and their outcomes as decisions. Pure.

The content of a request is the `ApprovalView` of the call, complete and escaped, as at a terminal. A decision carries
its digest, so the call that runs is the one that was shown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from acp import helpers
from acp.schema import (
    ContentToolCallContent,
    FileEditToolCallContent,
    PermissionOption,
    RequestPermissionResponse,
    SelectedPermissionOutcome,
    ToolCallUpdate,
)

from pydantic_deep._text.escapes import visible
from pydantic_deep._text.line_diff import DiffLine
from pydantic_deep.approvals import ApprovalView, Approve, Decision, Deny, PendingApproval, Respond
from pydantic_deep.cli.approvals._call_view import CallView
from pydantic_deep.cli.approvals._policy import NO_PERSON_REASON
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.streaming import Approval, approval_of
from pydantic_deep.views import repeat_of

from ._updates import KINDS, Places, call_title, locations, text_content

ALLOW: Final = 'allow'
"""The option that runs a call as shown."""

ALWAYS: Final = 'always'
"""The option that also runs later calls in the session."""

REJECT: Final = 'reject'
"""The option that does not run a call, or declines a question."""

TEXT: Final = 'text'
"""The option that answers a question with the text of the next prompt, because the protocol has no input of texts."""

CHOICE: Final = 'choice:'
"""The beginning of the options with suggested answers; their position follows."""


class InvalidPermissionError(DeepAgentError):
    """The editor did not answer a permission request with one of its options."""

    def __init__(self, problem: str) -> None:
        super().__init__(f'{problem}. No call has run. Report this to the authors of the editor.')


@dataclass(frozen=True, kw_only=True)
class PermissionRequest:
    """The question to a person about one pending call."""

    call: PendingApproval
    """The call."""
    tool_call: ToolCallUpdate
    """The call as the editor shows it."""
    options: list[PermissionOption]
    """The answers that the person can choose."""

    def decision(self, response: RequestPermissionResponse) -> tuple[Decision | None, bool] | None:
        """Return the decision, and whether it also applies to later calls; `None` if the turn was cancelled. A decision
        `None` is the text of the next prompt.

        Raises:
            InvalidPermissionError: The option was not offered.
        """
        outcome = response.outcome
        if not isinstance(outcome, SelectedPermissionOutcome):
            return None
        chosen = outcome.option_id
        if chosen not in {option.option_id for option in self.options}:
            raise InvalidPermissionError(
                f'The editor answered a permission request with {chosen!r}, which was not offered'
            )
        if chosen == TEXT:
            return None, False
        return replace(self._decide(chosen), digest=self.call.digest), chosen == ALWAYS

    def _decide(self, chosen: str) -> Decision:
        if chosen in (ALLOW, ALWAYS):
            return Approve()
        if chosen.startswith(CHOICE):
            return Respond(_choices(self.call)[int(chosen.removeprefix(CHOICE))])
        return Deny() if 'approve' in self.call.decisions else Deny(NO_PERSON_REASON)


def permission_request(call: PendingApproval, places: Places) -> PermissionRequest:
    """Return the request for a pending call.

    Args:
        call: The call.
        places: Translates paths for the editor.
    """
    approval = approval_of(call)
    return PermissionRequest(
        call=call,
        tool_call=ToolCallUpdate(
            tool_call_id=approval.id,
            title=call_title(approval.path, approval.tool, approval.args),
            kind=KINDS.get(approval.tool, 'other'),
            status='pending',
            content=list(_content(approval.view, places)),
            locations=locations(approval.args, places),
            raw_input=approval.args,
        ),
        options=_options(call, approval),
    )


def _choices(call: PendingApproval) -> tuple[str, ...]:
    """Return the suggested answers to a question."""
    return () if call.preview is None else call.preview.choices


def _options(call: PendingApproval, approval: Approval) -> list[PermissionOption]:
    if 'approve' in approval.decisions:
        allow = PermissionOption(option_id=ALLOW, name='Allow', kind='allow_once')
        reject = PermissionOption(option_id=REJECT, name='Reject', kind='reject_once')
        repeat = repeat_of(approval.tool, approval.args, approval.view)
        if repeat is None:
            return [allow, reject]
        scope = visible(approval.tool, one_line=True) if repeat.kind == 'tool' else f'this very {repeat.kind}'
        always = PermissionOption(option_id=ALWAYS, name=f'Always allow {scope} in this session', kind='allow_always')
        return [allow, always, reject]
    return [
        *(
            PermissionOption(option_id=f'{CHOICE}{place}', name=visible(choice, one_line=True), kind='allow_once')
            for place, choice in enumerate(_choices(call))
        ),
        PermissionOption(option_id=TEXT, name='Answer in the next message', kind='allow_once'),
        PermissionOption(option_id=REJECT, name='Let the agent decide', kind='reject_once'),
    ]


def _content(view: ApprovalView, places: Places) -> list[ContentToolCallContent | FileEditToolCallContent]:
    """Return everything that a person has to see: the diff for the editor's own view, and the rest as text."""
    diff = None if view.preview is None else view.preview.diff
    path = None if diff is None else places.local(''.join(diff.path))
    edits: list[FileEditToolCallContent] = []
    if diff is not None and path is not None and diff.hunks and view.preview is not None:
        view = view.model_copy(update={'preview': view.preview.model_copy(update={'diff': None})})
        for hunk in diff.hunks:
            old, new = (
                ''.join(_text_of(line) for line in hunk.lines if line.kind in ('same', kind))
                for kind in ('removed', 'added')
            )
            edits.append(helpers.tool_diff_content(path, new, None if diff.kind == 'added' else old))
    lines = [f'{bar}{text.plain}' for bar, text in CallView(view=view, number=1, count=1).lines()]
    return [*edits, text_content('\n'.join(lines))]


def _text_of(line: DiffLine) -> str:
    return ''.join(line.text) + '\n' * line.is_ended
