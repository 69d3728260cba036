"""`Repeat`: the later calls of a conversation that a person can approve together with one. Pure.

A person who approves every write of a conversation should not have to answer each of them, on any interface. The answer
is remembered where it was given: by the chat until its conversation ends, by the page until its tab is closed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic_deep._text.simple_command import TIMEOUT
from pydantic_deep.approvals import ApprovalView

from ._base import View


class Repeat(View):
    """The later calls of a conversation that a person can approve together with one."""

    kind: Literal['tool', 'command', 'call']
    """`tool`: calls of the same tool. `command`: the same command, with any timeout. `call`: the same call, because its
    preview shows more than its arguments, such as the commands that a skill may run."""
    key: str
    """Identifies the calls: those with the same key, also of subagents. Compare it within a conversation."""


def repeat_of(tool: str, args: Mapping[str, Any], view: ApprovalView) -> Repeat | None:
    """Return the later calls that a person can approve together with a call.

    `None` if each needs a decision of its own: a question, a plan, or a call with a notice, such as one that changes a
    protected file, follows untrusted content, or may already have run.
    """
    preview = view.preview
    if tool == 'propose_plan':
        return None
    if preview is not None and (preview.kind == 'question' or preview.notice != ('',)):
        return None
    if 'command' in args:
        return _repeat('command', tool, {**args, TIMEOUT: None})
    if preview is not None and preview.kind == 'call' and preview.text != ('',):
        return _repeat('call', tool, args, preview.text)
    return _repeat('tool', tool)


def _repeat(kind: Literal['tool', 'command', 'call'], *content: object) -> Repeat:
    text = json.dumps([kind, *content], sort_keys=True)
    return Repeat(kind=kind, key=hashlib.sha256(text.encode()).hexdigest())
