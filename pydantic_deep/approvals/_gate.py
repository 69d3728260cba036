"""Decide whether a call may run, by the rules of all `Approvals` of a run and the other capabilities of the agent."""

from __future__ import annotations

import logging
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic_ai import RunContext, ToolDefinition
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ToolCallPart

from pydantic_deep._messages.deferred_metadata import (
    CHANGED_PROTECTED,
    DECISIONS,
    QUESTION_DECISIONS,
    Approved,
    CallRequest,
    DecisionKind,
    Edited,
    Preview,
    parse_request,
    with_notice,
    without_notice,
)
from pydantic_deep._text.escapes import visible
from pydantic_deep.extensions import (
    SupportsChangeTracking,
    SupportsFileGuard,
    SupportsPreapproval,
    SupportsPreview,
    SupportsProtectedPaths,
    SupportsRequiredApproval,
    find_capabilities,
)
from pydantic_deep_backends.paths import is_within

from ._listing import digest_of
from ._rules import Subject, Verdict, refusal_of, subject_of, verdict_of
from ._tool_names import is_delegating, is_marked, is_reading, is_writing
from ._types import ApprovalRule

_LOGGER = logging.getLogger('pydantic_deep')

MAX_CHANGES = 10
"""Maximum number of changed protected files to list in a notice."""


CHANGES_PROTECTED = 'This call may change a protected file.'
"""The notice for a call that changes a file for which rules and grants never suffice."""

CHECK_FAILED = 'It could not be checked whether this call requires approval.'
"""The reason for an approval if a capability raises an exception instead of giving one."""


@dataclass(frozen=True, kw_only=True)
class RunRule:
    """An approval rule that applies to a run."""

    rule: ApprovalRule
    inherited: bool
    """Whether the rule comes from a parent agent. Skills of a subagent cannot lift inherited rules."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call with validated arguments."""

    call: ToolCallPart
    tool_def: ToolDefinition
    args: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """The rules and capabilities that decide on the calls of one run."""

    rules_by_tool: Mapping[str, Sequence[RunRule]]
    inherited: bool
    """Whether every `Approvals` of this run is inherited."""
    previews: Sequence[SupportsPreview]
    preapprovals: Sequence[SupportsPreapproval]
    path_protections: Sequence[SupportsProtectedPaths]
    file_guards: Sequence[SupportsFileGuard]
    change_trackers: Sequence[SupportsChangeTracking]
    requirements: Sequence[SupportsRequiredApproval]

    def concerns(self, tool_def: ToolDefinition) -> bool:
        """Return whether calls of this tool need a decision. Other calls skip all further checks."""
        return (
            tool_def.name in self.rules_by_tool
            or is_marked(tool_def)
            or bool(self.requirements)
            or (self._has_protected and not is_reading(tool_def))
        )

    async def ask(self, ctx: RunContext[object], call: Call) -> CallRequest | None:
        """Return the request for a person; `None` if the call may run.

        Raises:
            ToolFailed: A rule denies the call, or its preview shows that it would fail.
        """
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        depends_on_files = (
            self._has_protected or bool(self.requirements) or any(rule.rule.allow or rule.rule.deny for rule in rules)
        )
        preview = await self.preview(ctx, call) if depends_on_files else None
        subject = subject_of(call.tool_def, call.args, preview)
        _refuse(rules, subject)
        decisions = await self._decisions_by_rule(ctx, call, subject, rules)
        if not decisions:
            return None
        if not depends_on_files:
            preview = await self.preview(ctx, call)
        _fail_at_once(preview)
        return CallRequest(preview=await self._with_notices(ctx, call, preview), decisions=_common(decisions, preview))

    async def decisions_on(self, ctx: RunContext[object], call: Call) -> tuple[DecisionKind, ...]:
        """Return the decisions that the rules of this run allow for a pending call, as the model made it."""
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        preview = await self.preview(ctx, call)
        subject = subject_of(call.tool_def, call.args, preview)
        decisions = await self._decisions_by_rule(ctx, call, subject, rules)
        if not decisions and all(self._verdict(rule, call, subject) == 'pass' for rule in rules):
            decisions = [rule.rule.decisions for rule in rules]  # the tool itself requires approval
        return _common(decisions, preview)

    async def ask_again(
        self, ctx: RunContext[object], call: Call, answer: Approved | Edited | None, *, kind: DecisionKind | None
    ) -> CallRequest | None:
        """Return a new request for a call that was approved or edited; `None` if the call may run.

        An approval is valid for one tool with the arguments and files that were shown and, if the preview binds, for
        the contents of these files.

        Args:
            ctx: The run.
            call: The call as it would run.
            answer: The answer; `None` if it does not record what was shown.
            kind: The kind of decision. It may be an edit without an `Edited` answer, as raw pydantic-ai results may
                edit too.

        Raises:
            ToolFailed: A rule denies the call, despite the approval.
        """
        new_request = await self.ask(ctx, call)
        if new_request is not None and kind not in new_request.decisions:
            return new_request
        if answer is None:
            return None
        request = parse_request(answer.request)
        shown = request if isinstance(request, CallRequest) else CallRequest()
        current = await self.preview(ctx, call) if new_request is None else without_notice(new_request.preview)
        _fail_at_once(current)
        is_as_shown = _touches_nothing_else if isinstance(answer, Edited) else _is_as_shown
        if answer.shown == digest_of(call.call) and is_as_shown(without_notice(shown.preview), current):
            return None
        edited = call.call.args_as_dict() if isinstance(answer, Edited) else None
        return shown.model_copy(update={'preview': await self._with_notices(ctx, call, current), 'edited': edited})

    async def answered_below(self, ctx: RunContext[object], call: Call) -> CallRequest | None:
        """Return a new request for a call that was approved together with answers for a subagent; `None` if the call
        delegates.

        Raises:
            ToolFailed: A rule denies the call, despite the approval.
        """
        if not is_delegating(call.tool_def):
            return await self.request(ctx, call)
        subject = subject_of(call.tool_def, call.args, await self.preview(ctx, call))
        _refuse(self.rules_by_tool.get(call.tool_def.name, ()), subject)
        return None

    async def request(self, ctx: RunContext[object], call: Call) -> CallRequest:
        """Return the request for a call whose tool requires approval itself.

        Raises:
            ToolFailed: The call would fail.
        """
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        preview = await self.preview(ctx, call)
        decisions = _common([rule.rule.decisions for rule in rules], preview)
        _fail_at_once(preview)
        return CallRequest(preview=await self._with_notices(ctx, call, preview), decisions=decisions)

    async def changes(self, ctx: RunContext[object]) -> str | None:
        """Return a notice of the protected files that the run has changed; `None` if there are none."""
        changes = list(
            {change: None for tracker in self.change_trackers for change in await tracker.guarded_changes(ctx)}
        )
        if not changes:
            return None
        named = ', '.join(visible(change, one_line=True) for change in changes[:MAX_CHANGES])
        more = f' and {len(changes) - MAX_CHANGES} more' if len(changes) > MAX_CHANGES else ''
        return f'{CHANGED_PROTECTED}{named}{more}.'

    async def _with_notices(self, ctx: RunContext[object], call: Call, preview: Preview | None) -> Preview | None:
        """Return a preview with the reasons of capabilities and the notices of protected files added."""
        subject = subject_of(call.tool_def, call.args, preview)
        for reason in await self._reasons(ctx, call, subject):
            preview = with_notice(preview, reason)
        if not is_reading(call.tool_def) and await self._concerns_protected(ctx, call, subject):
            preview = with_notice(preview, CHANGES_PROTECTED)
        changes = await self.changes(ctx)
        return preview if changes is None else with_notice(preview, changes)

    async def preview(self, ctx: RunContext[object], call: Call) -> Preview | None:
        """Return the preview of a call, from the first capability that has one."""
        for provider in self.previews:
            try:
                preview = await provider.preview(ctx, call=call.call, tool_def=call.tool_def, args=call.args)
            except Exception:  # third-party code; a person can decide without a preview
                _LOGGER.warning('The preview of a call of %r failed', call.tool_def.name, exc_info=True)
                continue
            if preview is not None:
                return preview
        return None

    async def _decisions_by_rule(
        self, ctx: RunContext[object], call: Call, subject: Subject, rules: Sequence[RunRule]
    ) -> list[Sequence[DecisionKind]]:
        """Return the decisions that each rule allows, for the rules that require approval.

        Neither a grant nor a rule lifts the requirement of a capability.
        """
        is_required = bool(await self._reasons(ctx, call, subject))
        concerns_protected = await self._concerns_protected(ctx, call, subject)
        preapproved = not concerns_protected and not is_required and self._is_preapproved(call)
        verdicts = [
            ('allow' if preapproved and not rule.inherited else self._verdict(rule, call, subject), rule.rule.decisions)
            for rule in rules
        ]
        allowed = [decisions for verdict, decisions in verdicts if verdict == 'ask']
        lifted = (preapproved and not self.inherited) or any(verdict == 'allow' for verdict, _ in verdicts)
        if is_marked(call.tool_def) and not lifted:
            allowed.append(DECISIONS)
        if is_required or (concerns_protected and not is_reading(call.tool_def)):
            allowed.append(DECISIONS)
        return allowed

    async def _reasons(self, ctx: RunContext[object], call: Call, subject: Subject) -> list[str]:
        """Return the reasons of capabilities that require approval for a call, without repetitions."""
        files = subject.files if subject.is_seen else None
        reasons: dict[str, None] = {}
        for requirement in self.requirements:
            try:
                reason = await requirement.approval_reason(ctx, tool_def=call.tool_def, args=call.args, files=files)
            except Exception:  # third-party code; a person can decide
                _LOGGER.warning('The check of a call of %r failed', call.tool_def.name, exc_info=True)
                reason = CHECK_FAILED
            if reason is not None:
                reasons[reason] = None
        return [*reasons]

    def _verdict(self, rule: RunRule, call: Call, subject: Subject) -> Verdict:
        return verdict_of(rule.rule, subject, tool=call.tool_def.name, args=call.args)

    def _is_preapproved(self, call: Call) -> bool:
        return any(
            grant.is_preapproved(call=call.call, tool_def=call.tool_def, args=call.args) for grant in self.preapprovals
        )

    @property
    def _has_protected(self) -> bool:
        return bool(self.path_protections or self.file_guards)

    async def _concerns_protected(self, ctx: RunContext[object], call: Call, subject: Subject) -> bool:
        """Return whether a call reads or changes a protected path, or may change a protected file."""
        return self._may_touch_protected(call, subject) or await self._is_guarded(ctx, call, subject)

    async def _is_guarded(self, ctx: RunContext[object], call: Call, subject: Subject) -> bool:
        """Return whether a call changes a file that is protected by its name. If that is unknown, return `True`."""
        if is_reading(call.tool_def):
            return False
        files = subject.files if subject.is_seen else None
        for guard in self.file_guards:
            try:
                if await guard.changes_guarded_file(ctx, tool_def=call.tool_def, args=call.args, files=files):
                    return True
            except Exception:  # third-party code; a person can decide
                _LOGGER.warning(
                    'The check whether a call of %r writes protected files failed', call.tool_def.name, exc_info=True
                )
                return True
        return False

    def _may_touch_protected(self, call: Call, subject: Subject) -> bool:
        """Return whether a call touches protected paths, or writes to a path without a preview to resolve it."""
        protected = [_normal(path) for provider in self.path_protections for path in provider.protected_paths]
        if protected and not subject.is_seen:
            return is_writing(call.tool_def) and 'path' in call.args
        return any(
            is_within(_normal(file), path) or is_within(path, _normal(file))
            for file in subject.files
            for path in protected
        )


def open_gate(ctx: RunContext[object], layers: Sequence[tuple[Mapping[str, bool | ApprovalRule], bool]]) -> Gate:
    """Return the gate of a run.

    Args:
        ctx: The run.
        layers: The `interrupt_on` of each `Approvals` of the run, and whether it is inherited.
    """
    rules: dict[str, list[RunRule]] = {}
    for interrupt_on, inherited in layers:
        for name, rule in interrupt_on.items():
            if rule is not False:
                rules.setdefault(name, []).append(
                    RunRule(rule=ApprovalRule() if rule is True else rule, inherited=inherited)
                )
    return Gate(
        rules_by_tool=rules,
        inherited=all(inherited for _, inherited in layers),
        previews=find_capabilities(ctx, SupportsPreview),
        preapprovals=find_capabilities(ctx, SupportsPreapproval),
        path_protections=[
            provider for provider in find_capabilities(ctx, SupportsProtectedPaths) if provider.protected_paths
        ],
        file_guards=find_capabilities(ctx, SupportsFileGuard),
        change_trackers=find_capabilities(ctx, SupportsChangeTracking),
        requirements=find_capabilities(ctx, SupportsRequiredApproval),
    )


def _refuse(rules: Sequence[RunRule], subject: Subject) -> None:
    for rule in rules:
        refusal = refusal_of(rule.rule, subject)
        if refusal is not None:
            raise ToolFailed(refusal)


def _fail_at_once(preview: Preview | None) -> None:
    """Fail a call that the tool would refuse, instead of asking a person first."""
    if preview is not None and preview.failure is not None:
        raise ToolFailed(preview.failure)


def _is_as_shown(shown: Preview | None, current: Preview | None) -> bool:
    """Return whether a call still has the effect that a person was shown. The position of an edit within a file may
    differ.
    """
    if shown is None or current is None:
        return shown is current or (current is not None and not current.binds)
    if current.binds:
        return current == shown
    return current.files.keys() == shown.files.keys() and (current.kind == 'diff' or current.text == shown.text)


def _touches_nothing_else(shown: Preview | None, current: Preview | None) -> bool:
    """Return whether an edited call replaces only file contents that a person was shown, or files outside of the
    preview.
    """
    if current is None or not current.binds:
        return True
    files = {} if shown is None else shown.files
    return all(files.get(path, digest) == digest for path, digest in current.files.items())


def _common(decisions: Sequence[Sequence[DecisionKind]], preview: Preview | None) -> tuple[DecisionKind, ...]:
    """Return the decisions that all rules and the kind of preview allow, or only `deny` if there are none."""
    possible = QUESTION_DECISIONS if preview is not None and preview.kind == 'question' else DECISIONS
    common: tuple[DecisionKind, ...] = tuple(kind for kind in possible if all(kind in each for each in decisions))
    return common or ('deny',)


def _normal(path: str) -> str:
    return unicodedata.normalize('NFC', path)
