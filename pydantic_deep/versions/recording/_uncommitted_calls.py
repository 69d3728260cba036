"""The ledger entries of a run until a commit has them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from pydantic_deep.store import CallRecord
from pydantic_deep.versions.files._turn_files import TurnFiles, key_of


@dataclass(kw_only=True)
class UncommittedCalls:
    """The ledger entries of one run for its next commit."""

    volatile_files: TurnFiles | None
    """The files of the run if a crash loses them, so that calls that change only these can run again."""
    in_message: set[tuple[str, str, str]] = field(default_factory=set[tuple[str, str, str]], init=False)
    """The keys of finished calls whose results the next message has."""
    entries: list[CallRecord] = field(default_factory=list[CallRecord], init=False)
    """The entries, except for those that are committed with `volatile_files`."""

    def can_repeat(self, call: CallRecord) -> bool:
        """Return whether an uncommitted call can run again after a crash.

        A call can if it only reads, or changes only files that a crash loses.
        """
        return call.effect == 'read' or (call.effect == 'write' and self.volatile_files is not None)

    def add(self, call: CallRecord) -> None:
        """Add the start or the end of a repeatable call."""
        if call.effect == 'write' and self.volatile_files is not None:
            self.volatile_files.note(call)
        else:
            self.entries.append(call)

    def supersede(self, call: CallRecord) -> None:
        """Add that a call runs again."""
        self.entries.append(call._replace(status='superseded'))

    def add_to_message(self, call: CallRecord) -> None:
        """Add that the next message has the whole result of a call."""
        self.in_message.add(key_of(call))

    def records(self, of_files: Sequence[CallRecord], in_message: Collection[tuple[str, str, str]]) -> list[CallRecord]:
        """Return the entries to commit, after those with the files, without results that the messages have."""
        calls = [*of_files, *self.entries]
        return [call._replace(result=None) if key_of(call) in in_message else call for call in calls]
