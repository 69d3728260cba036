"""`SandboxLimits`: resource limits of a command."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

_MIB = 1024 * 1024
_MAX = 2**63 - 1  # of the kernel


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """Resource limits of a command in a sandbox. Each number is positive.

    Raises:
        ValueError: A number is not positive, not finite, or a fraction where its type is `int`.
    """

    timeout_seconds: float = 600.0
    """Maximum run time of a command in seconds; the `timeout` of a call can only shorten it."""
    cpu_seconds: int = 300
    """CPU time in seconds, per process. The run time of the command limits the sum over all processes."""
    memory_bytes: int = 2048 * _MIB
    """Address space per process. Where a control group can be created (mostly as root), it also limits the memory of
    all processes together, including temporary files. Raise it for programs that reserve much more memory than they
    use."""
    processes: int = 256
    """Maximum number of simultaneous processes and threads, two of which supervise the command."""
    open_files: int = 1024
    """Maximum number of open descriptors per process."""
    file_size_bytes: int = 1024 * _MIB
    """Maximum size in bytes of each file that the command writes."""
    disk_bytes: int = 4096 * _MIB
    """Maximum disk space of all files in the workspace. It is checked several times a second while a command runs and
    the free space shrinks, so a fast writer exceeds it by the amount it writes between two checks. A command is also
    killed if the disk itself loses twice as much meanwhile, no matter to whom, because deleted files that are still
    open cannot be found."""
    disk_files: int = 500_000
    """Maximum number of files and directories in the workspace; checked like `disk_bytes`."""
    tmp_bytes: int = 256 * _MIB
    """Size of `/tmp` and of `/dev/shm`, each. Both are in memory and are removed after the command."""
    output_bytes: int = _MIB
    """Bytes to return of standard output and of standard error, each; the middle of longer output is omitted."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: Any = getattr(self, field.name)
            kind, name = (int, 'whole') if isinstance(field.default, int) else (int | float, 'finite')
            if isinstance(value, bool) or not isinstance(value, kind) or not 0 < value <= _MAX:
                raise ValueError(f'`{field.name}` is {value!r}. Pass a positive, {name} number.')

    def of_process(self) -> dict[int, int]:
        """Return the limits per process, keyed by the kernel's resource number."""
        import resource  # missing on Windows

        return {
            resource.RLIMIT_CPU: self.cpu_seconds,
            resource.RLIMIT_AS: self.memory_bytes,
            resource.RLIMIT_NPROC: self.processes,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_FSIZE: self.file_size_bytes,
            resource.RLIMIT_CORE: 1,  # with 0, a program configured as core handler on the host would still get a core
        }
