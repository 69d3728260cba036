"""Forked children of the test process, in which all modules are already imported."""

from __future__ import annotations

import asyncio
import os
import signal
import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager


def in_fork(main: Callable[[], Coroutine[object, object, str]]) -> str:
    """Run a coroutine in a forked child on a new event loop, and return its result, or the `repr` of an error."""
    source, sink = os.pipe()
    pid = _fork()
    if pid == 0:  # pragma: no cover - in another process
        _run_child(lambda: os.write(sink, _answer(main).encode()))
    os.close(sink)
    with os.fdopen(source) as reader:
        answer = reader.read()
    os.waitpid(pid, 0)
    return answer


@contextmanager
def stopped_child(main: Callable[[Callable[[], None]], Coroutine[object, object, None]]) -> Generator[int]:
    """Run a coroutine in a forked child until it calls its argument, which stops the process. The child is killed at
    the end.
    """
    pid = _fork()
    if pid == 0:  # pragma: no cover - in another process
        _run_child(lambda: _run(main(lambda: os.kill(os.getpid(), signal.SIGSTOP))))
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    yield pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter('ignore', DeprecationWarning)  # the child does not use the parent's threads
        return os.fork()


def _answer(main: Callable[[], Coroutine[object, object, str]]) -> str:  # pragma: no cover - in another process
    try:
        return _run(main())
    except BaseException as error:
        return repr(error)


def _run(coroutine: Coroutine[object, object, object]) -> str:  # pragma: no cover - in another process
    asyncio.events._set_running_loop(None)  # the parent's loop, which keeps running in the parent
    return str(asyncio.new_event_loop().run_until_complete(asyncio.wait_for(coroutine, 60)))


def _run_child(act: Callable[[], object]) -> None:  # pragma: no cover - in another process
    try:
        act()
    finally:
        os._exit(0)
