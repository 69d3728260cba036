"""`SandboxLimits`: how much a command may use."""

from __future__ import annotations

from dataclasses import dataclass, fields

_MIB = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class SandboxLimits:
    """How much a command of a sandbox may use. Each number is positive.

    Raises:
        ValueError: A number is not positive, or not finite.
    """

    timeout_seconds: float = 600.0
    """How long a command may take; a `timeout` of the caller can only be shorter."""
    cpu_seconds: int = 300
    """Time on a processor, for each process. All together are bounded by the time that the command may take."""
    memory_bytes: int = 2048 * _MIB
    """Address space of each process; where a control group can be made (as root, mostly), also the memory of all
    processes together, with their temporary files. A program that reserves much and uses little needs more here."""
    processes: int = 256
    """Processes and threads at a time, two of which watch over the command."""
    open_files: int = 1024
    """Descriptors of each process."""
    file_size_bytes: int = 1024 * _MIB
    """The size of each file that is written."""
    disk_bytes: int = 4096 * _MIB
    """How much the files of the workspace may take on the disk together. Looked at several times a second while a
    command runs and the disk gets fuller; a fast writer gets beyond it by what it writes in between. A command is ended
    too if the disk itself loses twice as much meanwhile, whoever takes it: files without a name are not found."""
    disk_files: int = 500_000
    """How many files and directories the workspace may have; looked at like `disk_bytes`."""
    tmp_bytes: int = 256 * _MIB
    """The size of `/tmp`, and that of `/dev/shm`: both are in memory, and gone after the command."""
    output_bytes: int = _MIB
    """How much is kept of standard output, and of standard error; the middle of what is longer is left out."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value: object = getattr(self, field.name)
            if not isinstance(value, int | float) or not 0 < value < float('inf'):
                raise ValueError(f'`{field.name}` is {value!r}. Pass a positive, finite number.')

    def of_process(self) -> dict[int, int]:
        """Return the limits of each process, by the kernel's number."""
        import resource  # which Windows lacks

        return {
            resource.RLIMIT_CPU: self.cpu_seconds,
            resource.RLIMIT_AS: self.memory_bytes,
            resource.RLIMIT_NPROC: self.processes,
            resource.RLIMIT_NOFILE: self.open_files,
            resource.RLIMIT_FSIZE: self.file_size_bytes,
            resource.RLIMIT_CORE: 1,  # 0 would still hand a core to a program that the host has set to take cores
        }
