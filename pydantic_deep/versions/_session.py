"""`Session`: an agent with its store and caches, which all versions of the agent share.

It loads data for turns and versions. Not here: turns (`_turn`), and handles of versions (`_version`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.agent import AbstractAgent
from pydantic_ai.messages import ModelMessage
from pydantic_core import from_json
from typing_extensions import TypeVar

from pydantic_deep._checks import check_object
from pydantic_deep.deps import is_deps_type
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.store import Store, VersionRecord
from pydantic_deep_backends import Tree

from ._lru import LRUCache
from ._messages import load_history
from ._output_types import output_adapter
from .files._tree_store import TreeStore
from .recording._recorded_run import RecordedRun
from .recording._request_log import RequestLog

DepsT = TypeVar('DepsT', default=object)
OutputT = TypeVar('OutputT', default=str)


class Session(Generic[DepsT, OutputT]):
    """An agent with its store and caches."""

    def __init__(
        self,
        agent: AbstractAgent[DepsT, OutputT],
        store: Store,
        *,
        make_deps: Callable[[], DepsT] | None,
        approval_timeout_seconds: float | None,
    ) -> None:
        self.agent = agent
        self.store = store
        self.approval_timeout_seconds = approval_timeout_seconds
        """The age at which a pending approval counts as denied; `None` for never."""
        self.trees: TreeStore = TreeStore(store)
        """Loads and caches the files of versions."""
        self._make_deps = make_deps
        self._histories = LRUCache[tuple[list[ModelMessage], list[str]]]()
        self._request_logs = LRUCache[RequestLog]()

    @property
    def name(self) -> str:
        """The name of the agent; `agent` if it has none."""
        return self.agent.name or 'agent'

    @property
    def has_make_deps(self) -> bool:
        """Whether `make_deps` calls a function of the caller."""
        return self._make_deps is not None

    def make_deps(self) -> object:
        """Create the deps of a run.

        Raises:
            ValidationError: `make_deps` returns another object, such as a coroutine.
            DeepAgentError: `deps_type` requires arguments, and there is no `make_deps`.
        """
        deps_type = self.agent.deps_type
        if self._make_deps is not None:
            deps: object = self._make_deps()
            if deps is not None and is_deps_type(deps_type):
                check_object('make_deps', deps, deps_type, 'Return an object of it, without `async`.')
            return deps
        if not is_deps_type(deps_type):
            return None
        try:
            return deps_type()
        except TypeError as error:
            name = deps_type.__name__
            raise DeepAgentError(
                f'{name}() cannot create deps: {error}. Pass `make_deps=lambda: {name}(…)` to `VersionedAgent`.'
            ) from error

    async def history(self, record: VersionRecord) -> tuple[list[ModelMessage], list[str]]:
        """Return the messages of a version and their ids. The lists are cached and shared: do not change them."""
        cached = self._histories.get(record.id)
        if cached is None:
            cached = self._histories.set(record.id, await load_history(self.store, record))
        return cached

    def request_log(self, record: VersionRecord) -> RequestLog:
        """Return the log of the requests up to a version, for a run that continues it."""
        cached = self._request_logs.get(record.id)
        return RequestLog() if cached is None else cached.for_next_run()

    def cache_history(self, version_id: str, messages: list[ModelMessage], ids: list[str]) -> None:
        """Cache the history of a version that no run created."""
        self._histories.set(version_id, (messages, ids))

    def cache_run(self, recording: RecordedRun, tree: Tree | None) -> None:
        """Cache the history, request log and files of a finished run for the next turn."""
        self._histories.set(recording.tip.id, (recording.history.messages, recording.history.ids))
        self._request_logs.set(recording.tip.id, recording.start.requests)
        if tree is not None:
            self.trees.cache(tree)

    def parse_output(self, text: str) -> OutputT:
        """Parse a stored output into the output type of the agent; an output by the schema of a turn, as plain JSON."""
        try:
            return cast('OutputT', self._output_adapter.validate_json(text))
        except ValidationError:
            return cast('OutputT', from_json(text))

    @cached_property
    def _output_adapter(self) -> TypeAdapter[Any]:
        return output_adapter(self.agent.output_type)
