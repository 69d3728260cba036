"""Mirrors: the logs of runs that other processes execute, copied from the store while clients of this process follow.

All mirrors share one task, which asks the store once per interval how far the runs are, and reads only what is new.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import anyio

from pydantic_deep._logs.outage_log import OutageLog
from pydantic_deep.store import QueuedRunRecord, RunProgress, RunQueue, StoreUnavailableError
from pydantic_deep.streaming import StreamEvent, decode_entry

from ._run_log import RunLog
from ._server_run import ServerRun

_LOGGER = logging.getLogger('pydantic_deep')

POLL_SECONDS = 0.05
"""Interval at which the store is asked for new events while runs are mirrored."""

RETRY_SECONDS = 1.0
"""How long a store that is unavailable is left alone."""

_NOTED = tuple(f'event: {name}\n'.encode() for name in ('end', 'error', 'usage'))
"""The beginnings of entries that change the state of a run. Others are copied without being decoded."""


@dataclass(kw_only=True)
class _Mirror:
    run: ServerRun
    epoch: int = 0


class RunMirrors:
    """The mirrored runs of this process, which `run` keeps up to date.

    Args:
        queue: The queue of the store.
        memory_bytes: The maximum size of a log in memory.
        load_events: Returns the events of an ended run that has no log, from the store.
    """

    def __init__(
        self,
        queue: RunQueue,
        *,
        memory_bytes: int,
        load_events: Callable[[str], Awaitable[list[StreamEvent]]],
    ) -> None:
        self.queue = queue
        """The queue of the store."""
        self.on_end: Callable[[ServerRun], object] = ServerRun.mark_ended
        """Called with each run that has ended, to end it here."""
        self._memory_bytes = memory_bytes
        self._load_events = load_events
        self._mirrors: dict[str, _Mirror] = {}
        self._added = anyio.Event()
        self._scope = anyio.CancelScope()

    def get(self, run_id: str) -> ServerRun | None:
        """Return a mirrored run."""
        mirror = self._mirrors.get(run_id)
        return None if mirror is None else mirror.run

    @property
    def runs(self) -> list[ServerRun]:
        """All mirrored runs, in the order in which they were added."""
        return [mirror.run for mirror in self._mirrors.values()]

    def add(self, record: QueuedRunRecord) -> ServerRun:
        """Mirror a queued run, and return it."""
        known = self.get(record.run_id)
        if known is not None:
            return known
        run = ServerRun.mirrored(record, RunLog(memory_bytes=self._memory_bytes, epoch=epoch_name(0)))
        self._mirrors[run.id] = _Mirror(run=run)
        self._added.set()
        if self._scope.cancel_called:
            run.release()
        return run

    def stop(self) -> None:
        """Stop to mirror runs. Readers of their logs and waiting tasks are released, without an end of the run."""
        self._scope.cancel()
        for mirror in self._mirrors.values():
            mirror.run.release()

    def clear(self) -> None:
        """Discard the logs of all mirrors. Call it when nothing reads them any more."""
        for log in (log for mirror in self._mirrors.values() for log in mirror.run.logs):
            log.discard()
        self._mirrors.clear()

    async def run(self) -> None:
        """Keep the mirrors up to date until `stop` is called, or the task is cancelled."""
        with self._scope:
            await self._update_all()

    async def _update_all(self) -> None:
        outage = OutageLog('The server', 'store')
        while True:
            if not self._mirrors:
                self._added = anyio.Event()
                await self._added.wait()
            try:
                known = dict(self._mirrors)  # mirrors that are added meanwhile are not among the results
                progress = {item.run_id: item for item in await self.queue.progress(list(known))}
                for run_id, mirror in known.items():
                    await self._update_or_drop(mirror, progress.get(run_id))
                outage.note_success()
            except StoreUnavailableError as error:
                outage.note_failure(error)
                await anyio.sleep(RETRY_SECONDS)
            await anyio.sleep(POLL_SECONDS)

    async def _update_or_drop(self, mirror: _Mirror, progress: RunProgress | None) -> None:
        try:
            await self._update(mirror, progress)
        except StoreUnavailableError:
            raise
        except Exception:  # outermost boundary: one damaged run ends neither the server nor other mirrors
            _LOGGER.exception('The events of the run %s could not be read', mirror.run.id)
            self._drop(mirror.run)

    def _drop(self, run: ServerRun) -> None:
        del self._mirrors[run.id]
        self.on_end(run)
        run.caught_up.set()

    async def _update(self, mirror: _Mirror, progress: RunProgress | None) -> None:
        run = mirror.run
        if progress is not None:
            if progress.epoch != mirror.epoch:
                mirror.epoch = progress.epoch
                run.restart(RunLog(memory_bytes=self._memory_bytes, epoch=epoch_name(progress.epoch)))
            while len(run.log) < progress.position and await self._copy(mirror):
                pass
        if progress is None or progress.state == 'ended':
            if run.outcome is None:  # its worker crashed before the log was complete
                run.restart(RunLog(memory_bytes=self._memory_bytes, epoch=f'{epoch_name(mirror.epoch)}s'))
                for event in await self._load_events(run.id):
                    run.emit(event)
            self._drop(run)
        run.caught_up.set()

    async def _copy(self, mirror: _Mirror) -> bool:
        """Copy the next entries; return whether there were any."""
        log, after = mirror.run.log, len(mirror.run.log)
        for part in await self.queue.entries(mirror.run.id, mirror.epoch, after=after):
            for entry in part.entries[max(0, len(log) - part.first + 1) :]:
                log.append(entry)
                if entry[1:].startswith(_NOTED):
                    mirror.run.note(decode_entry(entry))
        return len(log) > after


def epoch_name(epoch: int) -> str:
    """Return the epoch of positions in the log of a claim, the same in every process."""
    return f'a{epoch}'
