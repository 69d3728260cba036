"""`RunStart`: the state in which a recorded run starts. Not here: the creation of runs (`_run_creation`, `_turn`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_ai.messages import ModelMessage

from pydantic_deep.store import RunRecord, VersionRecord
from pydantic_deep.versions.files._directory_claim import DirectoryClaim
from pydantic_deep.versions.files._turn_files import TurnFiles

from ._attempts import CrashedRun
from ._request_log import RequestLog


@dataclass(frozen=True, kw_only=True)
class RunStart:
    """The state in which a run starts: its base version, history, files and earlier attempts."""

    base: VersionRecord
    """The version that the run begins from."""
    messages: Sequence[ModelMessage] = ()
    """The history of the base. The run gets the same objects."""
    message_ids: Sequence[str] = ()
    """The ids of these messages."""
    run_record: RunRecord
    """The record of the run, as it is stored."""
    files: TurnFiles | None = None
    """The files of the turn; `None` if they are not versioned."""
    claim: DirectoryClaim | None = None
    """The claim of the directory in which the run works, if any."""
    branch_name: str | None = None
    """The name of a new branch; `None` to continue that of the base."""
    crashed: CrashedRun = field(default_factory=CrashedRun)
    """The crashed run that it resumes."""
    has_loaded_deps: bool = False
    """Whether the deps have exactly the state of the base."""
    has_files: bool = True
    """Whether the deps of the run have the files of the turn."""
    fork: str | None = None
    """The conversation that owns the fork with the files of the deps; its files are stored with the deps state. `None`
    without a fork.
    """
    parent_id: str | None = None
    """The parent of the version that the run ends with, if it is not the base: the base of the first attempt."""
    pause_id: str | None = None
    """The version with the answers that the run uses."""
    head_id: str | None = None
    """The present head of the conversation, if the end of the run moves it from there."""
    protected: Mapping[str, str] | None = None
    """The states of protected files when the turn began; `None` if they are unknown."""
    requests: RequestLog = field(default_factory=RequestLog)
    """The log of the requests of this run and earlier ones."""
