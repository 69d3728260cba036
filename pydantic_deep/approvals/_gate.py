"""Whether a call may run: the rules of all `Approvals` of a run, and what its other rooms say of the call."""

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
    find_capabilities,
)
from pydantic_deep_backends.paths import is_within

from ._listing import digest_of
from ._rules import Subject, Verdict, refusal_of, subject_of, verdict_of
from ._tool_names import is_delegating, is_marked, is_reading, is_writing
from ._types import ApprovalRule

_LOGGER = logging.getLogger('pydantic_deep')

MAX_CHANGES = 10
"""How many of the protected files that a run changed are named before each decision."""


@dataclass(frozen=True, kw_only=True)
class RunRule:
    """A rule as it holds in one run."""

    rule: ApprovalRule
    inherited: bool
    """Whether it is that of a parent, which no skill of a subagent may lift."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call whose arguments are valid."""

    call: ToolCallPart
    tool_def: ToolDefinition
    args: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Gate:
    """What decides over the calls of one run."""

    rules_by_tool: Mapping[str, Sequence[RunRule]]
    inherited: bool
    """Whether all that gates this run is inherited."""
    previews: Sequence[SupportsPreview]
    preapproves: Sequence[SupportsPreapproval]
    protects: Sequence[SupportsProtectedPaths]
    guards: Sequence[SupportsFileGuard]
    notes: Sequence[SupportsChangeTracking]

    def concerns(self, tool_def: ToolDefinition) -> bool:
        """Return whether a call of this tool is to be decided at all. All other calls cost no more than this."""
        return (
            tool_def.name in self.rules_by_tool
            or is_marked(tool_def)
            or (self._has_protected and not is_reading(tool_def))
        )

    async def ask(self, ctx: RunContext[object], call: Call) -> CallRequest | None:
        """Return what a person is to be asked; `None` if the call may run.

        Raises:
            ToolFailed: It never may.
        """
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        looks = self._has_protected or any(each.rule.allow or each.rule.deny for each in rules)
        preview = await self.preview(ctx, call) if looks else None
        subject = subject_of(call.tool_def, call.args, preview)
        _refuse(rules, subject)
        decisions = [*await self._asked(ctx, call, subject, rules)]
        if not decisions:
            return None
        if not looks:
            preview = await self.preview(ctx, call)
        _fail_at_once(preview)
        return CallRequest(preview=await self._with_changes(ctx, preview), decisions=_common(decisions))

    async def decisions_on(self, ctx: RunContext[object], call: Call) -> tuple[DecisionKind, ...]:
        """Return what a person may answer to a pending call, as the model made it, by the rules of this run."""
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        subject = subject_of(call.tool_def, call.args, await self.preview(ctx, call))
        asked = await self._asked(ctx, call, subject, rules)
        if not asked and all(self._verdict(each, call, subject) == 'pass' for each in rules):
            asked = [each.rule.decisions for each in rules]  # the tool asks by itself
        return _common(asked)

    async def ask_again(
        self, ctx: RunContext[object], call: Call, answer: Approved | Edited | None, *, kind: DecisionKind | None
    ) -> CallRequest | None:
        """Return what a person is to be asked once more, of a call that was approved or edited.

        An approval is for one tool, with the arguments that were shown, for the files that were shown, and where the
        preview binds, for their contents.

        Args:
            ctx: The run.
            call: The call as it would run.
            answer: The answer; `None` if nothing was kept of what was shown.
            kind: What was decided: raw results of pydantic-ai may edit too.

        Raises:
            ToolFailed: A rule refuses the call, whatever a person said.
        """
        asked = await self.ask(ctx, call)
        if asked is not None and kind not in asked.decisions:
            return asked
        if answer is None:
            return None
        request = parse_request(answer.request)
        shown = request if isinstance(request, CallRequest) else CallRequest()
        now = await self.preview(ctx, call) if asked is None else without_notice(asked.preview)
        _fail_at_once(now)
        is_as_shown = _touches_nothing_else if isinstance(answer, Edited) else _is_as_shown
        if answer.shown == digest_of(call.call) and is_as_shown(without_notice(shown.preview), now):
            return None
        edited = call.call.args_as_dict() if isinstance(answer, Edited) else None
        return shown.model_copy(update={'preview': await self._with_changes(ctx, now), 'edited': edited})

    async def answered_below(self, ctx: RunContext[object], call: Call) -> CallRequest | None:
        """Return what a person is to be asked of a call that came with the answers of a delegation: nothing, if it
        can be one.

        Raises:
            ToolFailed: A rule refuses the call, whatever a person said.
        """
        if not is_delegating(call.tool_def):
            return await self.request(ctx, call)
        subject = subject_of(call.tool_def, call.args, await self.preview(ctx, call))
        _refuse(self.rules_by_tool.get(call.tool_def.name, ()), subject)
        return None

    async def request(self, ctx: RunContext[object], call: Call) -> CallRequest:
        """Return what a person is to be asked of a call whose tool asks by itself.

        Raises:
            ToolFailed: The call would fail.
        """
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        decisions = _common([DECISIONS, *(each.rule.decisions for each in rules)])
        preview = await self.preview(ctx, call)
        _fail_at_once(preview)
        return CallRequest(preview=await self._with_changes(ctx, preview), decisions=decisions)

    async def changes(self, ctx: RunContext[object]) -> str | None:
        """Return a notice of the protected files that the run has changed so far; `None` if it has changed none."""
        changes = list({change: None for each in self.notes for change in await each.guarded_changes(ctx)})
        if not changes:
            return None
        named = ', '.join(visible(change, one_line=True) for change in changes[:MAX_CHANGES])
        more = f' and {len(changes) - MAX_CHANGES} more' if len(changes) > MAX_CHANGES else ''
        return f'{CHANGED_PROTECTED}{named}{more}.'

    async def _with_changes(self, ctx: RunContext[object], preview: Preview | None) -> Preview | None:
        """Return a preview that begins with the protected files that the run has changed."""
        changes = await self.changes(ctx)
        return preview if changes is None else with_notice(preview, changes)

    async def preview(self, ctx: RunContext[object], call: Call) -> Preview | None:
        """Return what the call would do, of the first room that knows."""
        for each in self.previews:
            try:
                preview = await each.preview(ctx, call=call.call, tool_def=call.tool_def, args=call.args)
            except Exception:  # the room may be anybody's; a person can decide without a preview
                _LOGGER.warning('The preview of a call of %r failed', call.tool_def.name, exc_info=True)
                continue
            if preview is not None:
                return preview
        return None

    async def _asked(
        self, ctx: RunContext[object], call: Call, subject: Subject, rules: Sequence[RunRule]
    ) -> list[Sequence[DecisionKind]]:
        """Return what each rule that asks lets a person decide; nothing if none asks."""
        touches = self._may_touch_protected(call, subject) or await self._is_guarded(ctx, call, subject)
        preapproved = not touches and self._is_preapproved(call)
        verdicts = [
            ('allow' if preapproved and not each.inherited else self._verdict(each, call, subject), each.rule.decisions)
            for each in rules
        ]
        asked = [decisions for verdict, decisions in verdicts if verdict == 'ask']
        lifted = (preapproved and not self.inherited) or any(verdict == 'allow' for verdict, _ in verdicts)
        if is_marked(call.tool_def) and not lifted:
            asked.append(DECISIONS)
        if touches and not is_reading(call.tool_def):
            asked.append(DECISIONS)
        return asked

    def _verdict(self, each: RunRule, call: Call, subject: Subject) -> Verdict:
        return verdict_of(each.rule, subject, tool=call.tool_def.name, args=call.args)

    def _is_preapproved(self, call: Call) -> bool:
        return any(
            each.is_preapproved(call=call.call, tool_def=call.tool_def, args=call.args) for each in self.preapproves
        )

    @property
    def _has_protected(self) -> bool:
        return bool(self.protects or self.guards)

    async def _is_guarded(self, ctx: RunContext[object], call: Call, subject: Subject) -> bool:
        """Return whether a call changes a file that is protected by its name; one that cannot be told counts as such."""
        if is_reading(call.tool_def):
            return False
        files = subject.files if subject.is_seen else None
        for each in self.guards:
            try:
                if await each.changes_guarded_file(ctx, tool_def=call.tool_def, args=call.args, files=files):
                    return True
            except Exception:  # the backend may be anybody's; a person can decide
                _LOGGER.warning(
                    'Whether a call of %r writes protected files is not known', call.tool_def.name, exc_info=True
                )
                return True
        return False

    def _may_touch_protected(self, call: Call, subject: Subject) -> bool:
        """Return whether a call touches protected files, or says that it writes to a path that no room has seen."""
        protected = [_normal(path) for each in self.protects for path in each.protected_paths]
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
        layers: What each `Approvals` of the run asks for, and whether it is inherited.
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
        preapproves=find_capabilities(ctx, SupportsPreapproval),
        protects=[each for each in find_capabilities(ctx, SupportsProtectedPaths) if each.protected_paths],
        guards=find_capabilities(ctx, SupportsFileGuard),
        notes=find_capabilities(ctx, SupportsChangeTracking),
    )


def _refuse(rules: Sequence[RunRule], subject: Subject) -> None:
    for each in rules:
        refusal = refusal_of(each.rule, subject)
        if refusal is not None:
            raise ToolFailed(refusal)


def _fail_at_once(preview: Preview | None) -> None:
    """Fail a call that the tool would refuse, instead of asking a person about it."""
    if preview is not None and preview.failure is not None:
        raise ToolFailed(preview.failure)


def _is_as_shown(shown: Preview | None, now: Preview | None) -> bool:
    """Return whether a call would do what a person was shown. The diff of an edit may have moved in its file."""
    if shown is None or now is None:
        return shown is now or (now is not None and not now.binds)
    if now.binds:
        return now == shown
    return now.files.keys() == shown.files.keys() and (now.kind == 'diff' or now.text == shown.text)


def _touches_nothing_else(shown: Preview | None, now: Preview | None) -> bool:
    """Return whether an edited call replaces no contents but those that a person was shown, or never saw."""
    if now is None or not now.binds:
        return True
    files = {} if shown is None else shown.files
    return all(files.get(path, digest) == digest for path, digest in now.files.items())


def _common(decisions: Sequence[Sequence[DecisionKind]]) -> tuple[DecisionKind, ...]:
    """Return what all of them allow; to deny is always left."""
    common: tuple[DecisionKind, ...] = tuple(kind for kind in DECISIONS if all(kind in each for each in decisions))
    return common or ('deny',)


def _normal(path: str) -> str:
    return unicodedata.normalize('NFC', path)
