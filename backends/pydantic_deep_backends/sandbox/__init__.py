"""`SandboxBackend`: the files of one directory, and commands that cannot reach anything else. Linux only.

`_backend` configures the sandbox, `_bwrap` starts it, `_seccomp` filters its system calls, `_limits`, `_cgroups` and
`_disk_usage` limit its resources, and `_isolation_check` tests the isolation before the first command runs.

Not here: file operations (`local`), the execution of a command once it has started (`commands`).
"""

from __future__ import annotations

from ._backend import SandboxBackend
from ._limits import SandboxLimits

__all__ = ('SandboxBackend', 'SandboxLimits')
