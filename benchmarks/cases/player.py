"""Plays a session for the agent of a contestant, as the model that answers each request. Standard library only.

The adapter of a contestant parses its requests and spells its tool calls. The player checks the result of every call,
since a session of failures would be cheap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import TypeAlias

from chat import prose
from ledger import SUMMARY_MARK, Ledger, Segments, Usage
from sessions import Action, Ask, Edit, Grep, Read, Session, Todos, Turn, lookup, page, passage_of

SUMMARY_CHARS = 1_200
"""Length of the summaries that the model writes for every contestant."""

WINDOW_TOKENS = 200_000
"""The context window that every contestant is configured with."""

KEPT = re.compile(r'[\w./-]*(?:offload|large_tool_results)/[\w./-]*\w')
"""The path under which a contestant stored a result that it did not show in full."""

Spell: TypeAlias = Callable[[Action], tuple[str, Mapping[str, object]]]
"""Translates an action into a call of a contestant's tools: the name and the arguments."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """A request to the model."""

    segments: Segments
    """The complete request, as sent."""
    is_summary: bool
    """Whether it asks for a summary."""
    result_by_id: Mapping[str, str]
    """The results of the last tool calls."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """A tool call of the model."""

    id: str
    name: str
    args: Mapping[str, object]


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A reply of the model: calls, or a text."""

    text: str
    calls: Sequence[Call]
    usage: Usage


class Player:
    """Plays the model in one session."""

    def __init__(self, session: Session, spell: Spell) -> None:
        """Store the session and the translation of its actions."""
        self.session = session
        self.ledger = Ledger()
        self._spell = spell
        self._steps: list[tuple[Action, ...]] = []
        self._following: list[tuple[Action, ...]] = []
        """Calls that fetch omitted parts of results; they precede the next step."""
        self._open: dict[str, Action] = {}
        self._answer = ''
        self._calls_made = 0
        self._is_answered = True

    def start(self, turn: Turn) -> None:
        """Start a turn. The previous one must have been answered."""
        if not self._is_answered:
            raise RuntimeError('A turn ended before its answer.')
        self._steps, self._answer, self._is_answered = list(turn.steps), turn.answer, False

    def end(self) -> None:
        """Raise if the last turn was not answered."""
        if not self._is_answered:
            raise RuntimeError('The last turn ended before its answer.')

    def respond(self, request: Request) -> Reply:
        """Return the reply of the model."""
        if request.is_summary:
            number = self.ledger.summaries
            return self._reply(request, f'{SUMMARY_MARK} {number}: {prose(number, SUMMARY_CHARS)}'[:SUMMARY_CHARS])
        self._look_at(request.result_by_id)
        waiting = self._following or self._steps
        if waiting:
            return self._reply(request, '', [self._call(action) for action in waiting.pop(0)])
        if self._is_answered:
            raise RuntimeError('The model was asked again after its answer.')
        self._is_answered = True
        return self._reply(request, self._answer)

    def _call(self, action: Action) -> Call:
        self._calls_made += 1
        name, args = self._spell(action)
        call = Call(id=f'call-{self._calls_made}', name=name, args=args)
        self._open[call.id] = action
        return call

    def _reply(self, request: Request, text: str, calls: Sequence[Call] = ()) -> Reply:
        written = text + ''.join(f'{call.name}{json.dumps(call.args, ensure_ascii=False)}' for call in calls)
        usage = self.ledger.record(request.segments, written, is_summary=request.is_summary)
        return Reply(text=text, calls=calls, usage=usage)

    def _look_at(self, result_by_id: Mapping[str, str]) -> None:
        """Raise for a failed result, and queue calls that fetch omitted parts, for all results at once."""
        chains: list[Sequence[Action]] = []
        for id_, action in self._open.items():
            result = result_by_id.get(id_)
            if result is None:
                raise RuntimeError(f'Nothing came back for {action}.')
            if isinstance(action, Ask):
                chains.append(_ask_again(action, result))
            elif not _is_done(action, result):
                raise RuntimeError(f'{action} came back with {result[:1_000]!r}.')
            elif isinstance(action, Read) and action.rest_of:
                chains.append(_read_on(action, action.rest_of, result))
        self._open.clear()
        new = [tuple(filter(None, actions)) for actions in zip_longest(*chains)]
        self._following = [(*before, *after) for before, after in zip_longest(self._following, new, fillvalue=())]


def _is_done(action: Read | Grep | Edit | Todos, result: str) -> bool:
    if isinstance(action, Read | Grep):
        return action.expected in result
    return not re.match(r'\W*(error|cannot|could not|failed|unknown)', result, re.IGNORECASE)


def _ask_again(ask: Ask, result: str) -> list[Action]:
    """Return the calls that fetch the needed parts of a truncated result; empty if it has all of them."""
    text = page(ask.key) if ask.tool == 'fetch' else lookup(ask.key)
    if text in result:
        return []
    stored = KEPT.search(result)
    if stored is None:
        raise RuntimeError(f'{ask} came back with {result[:1_000]!r}.')
    lines = text.split('\n')
    if ask.needs_all:
        return [Read(path=stored[0], expected=lines[0], rest_of=ask.key)]
    line, mark = passage_of(text)
    read = Read(path=stored[0], first=max(line - 10, 0), lines=30, expected=lines[line])
    return [Grep(pattern=mark, path=stored[0], expected=mark), read]


def _read_on(read: Read, url: str, result: str) -> list[Action]:
    """Return the call that reads the rest of a page; empty if the last lines were included."""
    lines = page(url).split('\n')
    following = next((place for place in range(read.first, len(lines)) if lines[place] not in result), None)
    if following is None:
        return []
    return [Read(path=read.path, first=following, expected=lines[following], rest_of=url)]
