"""Turns that workers run: in this process, in others, on other machines.

A turn is queued in the store (`submit`), and executed by a `Worker` of any process: `execute_run` begins it if it is
new, continues it if its process crashed, and does nothing if it has ended or is alive elsewhere. So any engine that
delivers at least once can deliver runs (`Dispatcher`), and none has to: workers also look for work in the store. What
has happened in a run is recorded by `pydantic_deep.versions` only, whose locks and fences decide who continues it.

The engines are `in_process`, `postgres` (extra `queue`) and `temporal` (extra `temporal`); `open_dispatcher` imports the
one of a URL.

While a run is executed, its events are written to a log in the store, which other processes read.
"""

from ._open import check_dispatcher_url, open_dispatcher
from ._protocol import Dispatcher, DispatcherHealth, ExecuteRun
from ._queued_turn import OpenBackend
from ._stored_events import load_attempts, load_run_messages
from ._submission import submit
from ._turn_events import TurnEvent, emit_turn
from ._worker import Worker
from ._worker_events import WorkerEvent, WorkerEventKind
from .errors import DispatcherUnavailableError, UnknownAgentError
from .in_process import InProcessDispatcher

__all__ = (
    'Dispatcher',
    'DispatcherHealth',
    'DispatcherUnavailableError',
    'ExecuteRun',
    'InProcessDispatcher',
    'OpenBackend',
    'TurnEvent',
    'UnknownAgentError',
    'Worker',
    'WorkerEvent',
    'WorkerEventKind',
    'check_dispatcher_url',
    'emit_turn',
    'load_attempts',
    'load_run_messages',
    'open_dispatcher',
    'submit',
)
