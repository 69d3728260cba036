"""The stored messages of a run, and the changes from them that a commit stores.

New messages are recognized by identity, so that a commit encodes only these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields

from pydantic_ai.messages import ModelMessage, ModelResponse

from pydantic_deep._messages.coalesced_requests import common, merged, rest_of
from pydantic_deep.store import Append, NewAsset, NewMessage, new_id
from pydantic_deep.versions._messages import encode_message


@dataclass(frozen=True, kw_only=True)
class HistoryChange:
    """The change from a stored history to another one."""

    at: int
    """The number of stored messages that both begin with."""
    messages: Sequence[ModelMessage]
    """The messages after these."""
    ids: Sequence[str]
    """The ids of `messages`."""
    append: Append | None
    """The part of a commit that stores the change; `None` if there is none."""
    assets: Sequence[NewAsset]
    """The media of new messages."""


@dataclass(kw_only=True)
class StoredHistory:
    """The stored messages of the newest version of a run, and their branch."""

    branch_id: str
    """The branch that has the messages."""
    messages: list[ModelMessage] = field(default_factory=list[ModelMessage])
    """The messages, which are the same objects as those of the run."""
    ids: list[str] = field(default_factory=list[str])
    """The ids of `messages`."""
    new_branch: str | None = None
    """The name of the branch that the next change begins; `None` for a unique name, or for no new branch."""
    forks: bool = False
    """Whether the next change begins a new branch."""

    def change_to(self, messages: Sequence[ModelMessage], staged: HistoryChange | None) -> HistoryChange:
        """Return the change to another history.

        Messages of a `staged` change, which is not committed, already have ids, which ledger entries refer to.
        """
        known = self.messages
        at, first_new = common(known, messages)
        new = list(messages[first_new:])
        if new and (more := rest_of(new[0], known[at:])) is not None:
            at, new[0] = len(known), more
        stored, ids = list[ModelMessage](), list[str]()
        news: list[NewMessage] = []
        assets: list[NewAsset] = []
        rest = list(zip(self.ids[at:], known[at:], strict=True))
        of_staged = () if staged is None else zip(staged.messages, staged.ids, strict=True)
        staged_ids = {id(message): staged_id for message, staged_id in of_staged}
        for message in new:
            again = _pop_known(message, rest)
            if again:
                news += (NewMessage(id=known_id, body=None) for known_id, _ in again)
            else:
                body, media = encode_message(message)
                assets += media
                again = [(staged_ids.get(id(message)) or new_id(), message)]
                news.append(NewMessage(id=again[0][0], body=body))
            ids += (known_id for known_id, _ in again)
            stored += (known_message for _, known_message in again)
        append = Append(
            branch_id=self.branch_id,
            at=at,
            messages=news,
            fork_id=new_id(),
            fork_name=self.new_branch if self.forks else None,
            is_fork=self.forks or at < len(known),
            rewrites=len(known) if at < len(known) else None,
        )
        is_change = at < len(known) or bool(news)
        return HistoryChange(at=at, messages=stored, ids=ids, append=append if is_change else None, assets=assets)

    def apply(self, change: HistoryChange, branch_id: str) -> None:
        """Apply a committed change, which has stored its messages on this branch."""
        del self.messages[change.at :], self.ids[change.at :]
        self.messages += change.messages
        self.ids += change.ids
        self.branch_id, self.forks = branch_id, False

    def catch_up(self, response: ModelResponse) -> list[ModelMessage]:
        """Make a recorded response the last stored one, and return the history up to it.

        The response stays the same object, because pydantic-ai looks for it in the history.
        """
        place = last_response(self.messages)
        for response_field in fields(response):
            setattr(response, response_field.name, getattr(self.messages[place], response_field.name))
        self.messages[place] = response
        return self.messages[: place + 1]


def _pop_known(message: ModelMessage, rest: list[tuple[str, ModelMessage]]) -> list[tuple[str, ModelMessage]]:
    """Remove and return the known messages that a message repeats or merges; return none if the message is new."""
    same = next((index for index, (_, known_message) in enumerate(rest) if known_message is message), None)
    count = 1
    if same is None:
        same = next((index for index, (_, known_message) in enumerate(rest) if known_message == message), None)
    if same is None:
        counts = (merged(message, [known_message for _, known_message in rest[index:]]) for index in range(len(rest)))
        same, count = next(((index, count) for index, count in enumerate(counts) if count), (0, 0))
    taken = rest[same : same + count]
    del rest[same : same + count]
    return taken


def last_response(messages: Sequence[ModelMessage]) -> int:
    """Return the index of the last response; -1 if there is none."""
    indexes = range(len(messages) - 1, -1, -1)
    return next((index for index in indexes if isinstance(messages[index], ModelResponse)), -1)


def response_id_of(messages: Sequence[ModelMessage], ids: Sequence[str]) -> str | None:
    """Return the id of the last response; `None` if there is none."""
    place = last_response(messages)
    return None if place < 0 else ids[place]
