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

from pydantic_deep._neighbours import Preapproves, Previews, Protects, neighbours
from pydantic_deep._pending import (
    DECISIONS,
    Approved,
    CallRequest,
    DecisionKind,
    Edited,
    Preview,
    parse_request,
    without_notice,
)
from pydantic_deep_backends.paths import is_within

from ._listing import digest_of
from ._names import is_delegating, is_marked, is_reading, is_writing
from ._rules import Subject, Verdict, refusal_of, subject_of, verdict_of
from ._types import ApprovalRule

_LOGGER = logging.getLogger('pydantic_deep')


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
    previews: Sequence[Previews]
    preapproves: Sequence[Preapproves]
    protects: Sequence[Protects]

    def concerns(self, tool_def: ToolDefinition) -> bool:
        """Return whether a call of this tool is to be decided at all. All other calls cost no more than this."""
        return (
            tool_def.name in self.rules_by_tool
            or is_marked(tool_def)
            or (bool(self.protects) and not is_reading(tool_def))
        )

    async def ask(self, ctx: RunContext[object], call: Call) -> CallRequest | None:
        """Return what a person is to be asked; `None` if the call may run.

        Raises:
            ToolFailed: It never may.
        """
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        looks = bool(self.protects) or any(each.rule.allow or each.rule.deny for each in rules)
        preview = await self.preview(ctx, call) if looks else None
        subject = subject_of(call.args, preview)
        _refuse(rules, subject)
        decisions = [*self._asked(call, subject, rules)]
        if not decisions:
            return None
        if not looks:
            preview = await self.preview(ctx, call)
        return CallRequest(preview=preview, decisions=_common(decisions))

    async def ask_again(
        self, ctx: RunContext[object], call: Call, answer: Approved | Edited | None
    ) -> CallRequest | None:
        """Return what a person is to be asked once more, of a call that was approved or edited.

        An approval is for one tool, with the arguments that were shown, for the files that were shown, and where the
        preview binds, for their contents.

        Args:
            ctx: The run.
            call: The call as it would run.
            answer: The answer; `None` if nothing was kept of what was shown.

        Raises:
            ToolFailed: A rule refuses the call, whatever a person said.
        """
        asked = await self.ask(ctx, call)
        if asked is not None and ('edit' if isinstance(answer, Edited) else 'approve') not in asked.decisions:
            return asked
        if answer is None:
            return None
        request = parse_request(answer.request)
        shown = request if isinstance(request, CallRequest) else CallRequest()
        now = await self.preview(ctx, call) if asked is None else asked.preview
        is_as_shown = _touches_nothing_else if isinstance(answer, Edited) else _is_as_shown
        if answer.shown == digest_of(call.call) and is_as_shown(without_notice(shown.preview), now):
            return None
        edited = call.call.args_as_dict() if isinstance(answer, Edited) else None
        return shown.model_copy(update={'preview': now, 'edited': edited})

    async def answered_below(self, ctx: RunContext[object], call: Call) -> CallRequest | None:
        """Return what a person is to be asked of a call that came with the answers of a delegation: nothing, if it
        can be one.

        Raises:
            ToolFailed: A rule refuses the call, whatever a person said.
        """
        if not is_delegating(call.tool_def):
            return await self.request(ctx, call)
        _refuse(self.rules_by_tool.get(call.tool_def.name, ()), subject_of(call.args, await self.preview(ctx, call)))
        return None

    async def request(self, ctx: RunContext[object], call: Call) -> CallRequest:
        """Return what a person is to be asked of a call whose tool asks by itself."""
        rules = self.rules_by_tool.get(call.tool_def.name, ())
        decisions = _common([DECISIONS, *(each.rule.decisions for each in rules)])
        return CallRequest(preview=await self.preview(ctx, call), decisions=decisions)

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

    def _asked(self, call: Call, subject: Subject, rules: Sequence[RunRule]) -> list[Sequence[DecisionKind]]:
        """Return what each rule that asks lets a person decide; nothing if none asks."""
        touches = self._may_touch_protected(call, subject)
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
        previews=neighbours(ctx, Previews),
        preapproves=neighbours(ctx, Preapproves),
        protects=[each for each in neighbours(ctx, Protects) if each.protected_paths],
    )


def _refuse(rules: Sequence[RunRule], subject: Subject) -> None:
    for each in rules:
        refusal = refusal_of(each.rule, subject)
        if refusal is not None:
            raise ToolFailed(refusal)


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
