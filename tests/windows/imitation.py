"""Makes this process look like Python on Windows to the modules that it imports next.

It loses the attributes of `os`, `select` and `signal` that typeshed (the stubs of the standard library, which
mypy brings) declares for other systems only, and the modules that Windows lacks. `sys.platform` is `win32`, event loops
refuse signal handlers, and `msvcrt.locking` locks for one open file, as there.

Not imitated: drives and backslashes in paths (`os.name` stays), open files that cannot be removed, the proactor event
loop, the console.
"""

from __future__ import annotations

import ast
import asyncio
import errno
import fcntl
import os
import select
import selectors
import shutil
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Final

import mypy

STUBS: Final = Path(mypy.__file__).parent / 'typeshed' / 'stdlib'

ABSENT: Final = (
    *('fcntl', 'grp', 'posix', 'pty', 'pwd', 'readline', 'resource', 'spwd', 'syslog', 'termios', 'tty'),
    'uvloop',  # no release for Windows
)
"""Modules that cannot be imported."""

OURS: Final = ('pydantic_deep', 'pydantic_deep_backends')

LK_UNLCK, LK_LOCK, LK_NBLCK = 0, 1, 2
"""The modes of `msvcrt.locking` (`sys/locking.h` of Windows)."""

TYPED: Final = ['y', 'e', 's']
"""Keys typed at the console but not read yet."""

LOCK_ATTEMPTS: Final = 10
"""Attempts of `LK_LOCK`, one per second."""


def imitate_windows() -> None:
    """Remove everything that Windows lacks, and unload the modules of this project."""
    asyncio.new_event_loop().close()  # from 3.14 on, the first loop selects the class of loops by `sys.platform`
    for module in (os, select, signal):
        for name in _declared(module, sys.platform) - _declared(module, 'win32'):
            if hasattr(module, name):
                delattr(module, name)
    setattr(os, 'O_BINARY', 0)  # noqa: B010 - Linux has none
    setattr(os, 'process_cpu_count', os.cpu_count)  # noqa: B010 - the one of Linux calls what was removed
    for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        functions.clear()
    setattr(shutil, '_use_fd_functions', False)  # noqa: B010 - it is private
    selectors.DefaultSelector = selectors.SelectSelector
    for name in ('add_signal_handler', 'remove_signal_handler'):
        setattr(asyncio.SelectorEventLoop, name, getattr(asyncio.AbstractEventLoop, name))
    for name in ABSENT:
        vars(sys)['modules'][name] = None  # documented by importlib for a module that cannot be imported
    sys.modules['msvcrt'] = msvcrt = ModuleType('msvcrt')
    vars(msvcrt).update(LK_UNLCK=LK_UNLCK, LK_LOCK=LK_LOCK, LK_NBLCK=LK_NBLCK, locking=_locking)
    vars(msvcrt).update(kbhit=lambda: bool(TYPED), getwch=TYPED.pop)
    for name in [name for name in sys.modules if name.partition('.')[0] in OURS]:
        del sys.modules[name]
    sys.platform = 'win32'


def _declared(module: ModuleType, platform: str) -> set[str]:
    """Return the names that the stub of a module declares for a system."""
    path = STUBS / module.__name__
    stub = path / '__init__.pyi' if path.is_dir() else path.with_suffix('.pyi')
    system = SimpleNamespace(platform=platform, version_info=sys.version_info)
    return {*_names(ast.parse(stub.read_text()).body, system)}


def _names(statements: Sequence[ast.stmt], system: SimpleNamespace) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.If():
                condition = eval(ast.unparse(statement.test), {'sys': system})
                yield from _names(statement.body if condition else statement.orelse, system)
            case ast.ImportFrom():
                yield from (alias.asname or alias.name for alias in statement.names)
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case _:
                pass


def _locking(descriptor: int, mode: int, size: int) -> None:
    """Lock or unlock an open file exclusively. The whole file represents its bytes."""
    operation = fcntl.LOCK_UN if mode == LK_UNLCK else fcntl.LOCK_EX | fcntl.LOCK_NB
    for attempt in range(LOCK_ATTEMPTS):
        try:
            fcntl.flock(descriptor, operation)
        except OSError:
            if mode != LK_LOCK or attempt == LOCK_ATTEMPTS - 1:
                raise PermissionError(errno.EACCES, 'Permission denied') from None
            time.sleep(1)
        else:
            return
