"""The ledger entries of a run until a commit has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pydantic_deep.store import CallRecord
from pydantic_deep.versions.files._turn_files import TurnFiles, key_of

from ._ledger import Writes


@dataclass(kw_only=True)
class UncommittedCalls:
    """The ledger entries of one run for its next commit."""

    files: TurnFiles | None
    """The files of the turn, if the deps of the run have them."""
    in_message: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]], init=False)
    """The keys of finished calls whose results the next message has."""
    entries: dict[tuple[str, str, str], CallRecord] = field(
        default_factory=dict[tuple[str, str, str], CallRecord], init=False
    )
    """The entries, keyed by call, except for those that are committed with `files`."""

    def can_repeat(self, call: CallRecord, writes: Writes | None) -> bool:
        """Return whether an uncommitted call can run again after a crash.

        A call can if it only reads, if a crash loses its changes, or if recovery can verify them.
        """
        if call.effect != 'write' or writes == 'deps':
            return call.effect != 'external'
        return self.files is not None and (self.files.is_volatile or writes == 'file')

    def add(self, call: CallRecord, writes: Writes | None) -> None:
        """Add the start or the end of a repeatable call."""
        if call.effect == 'write' and writes != 'deps' and self.files is not None:
            self.files.note(call)
        else:
            self.entries[key_of(call)] = call

    def supersede(self, call: CallRecord) -> None:
        """Add that a call runs again."""
        self.entries[key_of(call)] = call._replace(status='superseded')

    def add_to_message(self, call: CallRecord) -> None:
        """Add that the next message has the whole result of a call."""
        self.in_message.add(key_of(call))

    def records(self, of_files: Sequence[CallRecord], in_message: Collection[tuple[str, str, str]]) -> list[CallRecord]:
        """Return the entries to commit, after those with the files, without results that the messages have."""
        calls = [*of_files, *self.entries.values()]
        return [call._replace(result=None) if key_of(call) in in_message else call for call in calls]

    def mark_stored(self, calls: Collection[CallRecord]) -> None:
        """Remove entries that a commit has stored, unless the calls have ended meanwhile."""
        for call in calls:
            entry = self.entries.get(key_of(call))
            if entry is not None and entry.status == call.status:
                del self.entries[key_of(call)]
