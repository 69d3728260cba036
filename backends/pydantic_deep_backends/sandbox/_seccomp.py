"""The system call filter of every command in a sandbox: the denied calls, and the errors that they return.

A filter is a program for the kernel's classic BPF (`Documentation/userspace-api/seccomp_filter.rst`), here built from
four instructions. It is written by hand because the alternatives are worse: libseccomp's Python binding is not on PyPI,
and `pyseccomp` loads a system library that may be missing, all for a table of sixty numbers and 130 lines.

The filter is a deny list, so it is a second line of defence: namespaces and dropped capabilities work without it. It
reduces the attack surface of the kernel, and denies memory that no other limit counts. Numbers that are not in the
table are allowed. A program for another architecture (32 bits, x32) is killed, because its numbers have other meanings.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_JUMP_IF_EQUAL: Final = 0x15  # BPF_JMP | BPF_JEQ | BPF_K
_JUMP_IF_AT_LEAST: Final = 0x35  # BPF_JMP | BPF_JGE | BPF_K
_JUMP_IF_ANY: Final = 0x45  # BPF_JMP | BPF_JSET | BPF_K
_AND: Final = 0x54  # BPF_ALU | BPF_AND | BPF_K
_RETURN: Final = 0x06  # BPF_RET | BPF_K

_NUMBER: Final = 0
_ARCHITECTURE: Final = 4
_ARGUMENTS: Final = (16, 24, 32, 40)
"""Offsets in `struct seccomp_data` of the number, the architecture and the low halves of the first arguments. The
kernel uses only the low halves of the arguments that are checked here."""

_ALLOW: Final = 0x7FFF0000
_END_PROCESS: Final = 0x80000000
_FAIL: Final = 0x00050000
"""Return values of a filter, from `linux/seccomp.h`."""

_X32_BIT: Final = 0x40000000
"""The first number of the x32 calls, which share the architecture number of x86_64."""

_NEW_NAMESPACES: Final = 0x7E020000
"""All `CLONE_NEW…` flags of `clone`."""

_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_SOCK_TYPE_MASK = 0xF
_SOCK_STREAM, _SOCK_DGRAM = 1, 2

_PROTOCOLS: Final = (0, 6, 17)
"""0 (the default protocol of a socket type), TCP and UDP, from `linux/in.h`. Commands do not need the other internet
protocols (MPTCP, UDP-Lite, SCTP, DCCP, SMC, L2TP, ICMP), and MPTCP alone has had several vulnerabilities."""

_SOL_TCP, _TCP_ULP = 6, 31
"""The socket option that layers another protocol, such as kernel TLS, over TCP. Libraries work without it."""

_REQUESTS: Final = (0x5412, 0x541C, 0x5423, 0x40305828, 0x4030582A, 0x40305839)
"""`TIOCSTI` and `TIOCLINUX`, which type into a terminal; `TIOCSETD`, which loads line disciplines; and `FS_IOC_RESVSP`,
`FS_IOC_RESVSP64` and `FS_IOC_ZERO_RANGE`, which are equivalents of `fallocate`."""

_DENIED: Final = {
    # name: (x86_64, aarch64); `None` if the architecture has no such call
    'ptrace': (101, 117),
    'process_vm_readv': (310, 270),
    'process_vm_writev': (311, 271),
    'process_madvise': (440, 440),
    'pidfd_getfd': (438, 438),
    'kcmp': (312, 272),
    'io_uring_setup': (425, 425),
    'io_uring_enter': (426, 426),
    'io_uring_register': (427, 427),
    'add_key': (248, 217),
    'request_key': (249, 218),
    'keyctl': (250, 219),
    'bpf': (321, 280),
    'userfaultfd': (323, 282),
    'perf_event_open': (298, 241),
    'fanotify_init': (300, 262),
    'fanotify_mark': (301, 263),
    'lookup_dcookie': (212, 18),
    'mount': (165, 40),
    'umount2': (166, 39),
    'pivot_root': (155, 41),
    'chroot': (161, 51),
    'open_tree': (428, 428),
    'move_mount': (429, 429),
    'fsopen': (430, 430),
    'fsconfig': (431, 431),
    'fsmount': (432, 432),
    'fspick': (433, 433),
    'mount_setattr': (442, 442),
    'statmount': (457, 457),
    'listmount': (458, 458),
    'open_tree_attr': (467, 467),
    'name_to_handle_at': (303, 264),
    'open_by_handle_at': (304, 265),
    'quotactl': (179, 60),
    'quotactl_fd': (443, 443),
    'unshare': (272, 97),
    'setns': (308, 268),
    'init_module': (175, 105),
    'finit_module': (313, 273),
    'delete_module': (176, 106),
    'create_module': (174, None),
    'get_kernel_syms': (177, None),
    'query_module': (178, None),
    'kexec_load': (246, 104),
    'kexec_file_load': (320, 294),
    'reboot': (169, 142),
    'swapon': (167, 224),
    'swapoff': (168, 225),
    'acct': (163, 89),
    'syslog': (103, 116),
    'sethostname': (170, 161),
    'setdomainname': (171, 162),
    'settimeofday': (164, 170),
    'clock_settime': (227, 112),
    'clock_adjtime': (305, 266),
    'adjtimex': (159, 171),
    'vhangup': (153, 58),
    'nfsservctl': (180, 42),
    'iopl': (172, None),
    'ioperm': (173, None),
    'modify_ldt': (154, None),
    'uselib': (134, None),
    '_sysctl': (156, None),
    'ustat': (136, None),
    'sysfs': (139, None),
    'mbind': (237, 235),
    'set_mempolicy': (238, 237),
    'set_mempolicy_home_node': (450, 450),
    'migrate_pages': (256, 238),
    'move_pages': (279, 239),
    # Memory that is limited neither by the size of an address space nor by that of a file system.
    'memfd_secret': (447, 447),
    'shmget': (29, 194),
    'semget': (64, 190),
    'msgget': (68, 186),
}
"""Calls that always fail with `EPERM`."""

_MISSING: Final = {
    'clone3': (435, 435),  # its flags are in memory, which a filter cannot read; C libraries fall back to `clone`
    'memfd_create': (319, 279),  # unlimited memory; programs fall back to a temporary file
    'openat2': (437, 437),  # its mode is in memory too; programs fall back to `openat`
}
"""Calls that fail with `ENOSYS`, so that programs use an alternative."""

_UNSUPPORTED: Final = {
    'fallocate': (285, 47),  # fills a whole disk at once, and with `FALLOC_FL_KEEP_SIZE` no file size limit applies
}
"""Calls that fail as on a file system without support for them, so that C libraries write zeros instead."""


_MODES: Final = {
    # name: (x86_64, aarch64, position of the mode among the arguments)
    'open': (2, None, 2),
    'openat': (257, 56, 3),
    'creat': (85, None, 1),
    'chmod': (90, None, 1),
    'fchmod': (91, 52, 1),
    'fchmodat': (268, 53, 2),
    'fchmodat2': (452, 452, 2),
    'mknod': (133, None, 1),
    'mknodat': (259, 33, 2),
}
"""Calls that set the mode of a file. Outside, files belong to the user of this process, so a set-user-ID file from a
command would give everybody on the machine the rights of this process."""

_SET_ID: Final = 0o6000
"""The mode bits `S_ISUID` and `S_ISGID`."""


@dataclass(frozen=True, kw_only=True)
class _Architecture:
    audit: int
    """The number of the architecture in `linux/audit.h`."""
    column: int
    """The column of the architecture in the tables."""
    clone: int
    ioctl: int
    socket: int
    socketpair: int
    setsockopt: int
    has_x32: bool


_ARCHITECTURES: Final = {
    'x86_64': _Architecture(
        audit=0xC000003E, column=0, clone=56, ioctl=16, socket=41, socketpair=53, setsockopt=54, has_x32=True
    ),
    'aarch64': _Architecture(
        audit=0xC00000B7, column=1, clone=220, ioctl=29, socket=198, socketpair=199, setsockopt=208, has_x32=False
    ),
}

ARCHITECTURES: Final = tuple(_ARCHITECTURES)
"""The machines with a filter, as named by `os.uname().machine`."""


def denied_number(name: str, machine: str) -> int | None:
    """Return the number of a denied call; `None` if the machine has no such call."""
    return {**_DENIED, **_MISSING, **_UNSUPPORTED}[name][_ARCHITECTURES[machine].column]


def render_filter(machine: str, *, network: bool) -> bytes:
    """Return the filter for a machine.

    Args:
        machine: One of `ARCHITECTURES`.
        network: Whether the network of the host is shared. If so, single `AF_UNIX` sockets are denied, because one with
            an abstract name could connect to services of the host. Socket pairs are allowed.
    """
    chosen = _ARCHITECTURES[machine]
    families = (_AF_INET, _AF_INET6) if network else (_AF_UNIX, _AF_INET, _AF_INET6)
    parts = [
        _instruction(_LOAD, _ARCHITECTURE),
        _unless(_JUMP_IF_EQUAL, chosen.audit, _END_PROCESS),
        _instruction(_LOAD, _NUMBER),
    ]
    if chosen.has_x32:
        parts.append(_when(_JUMP_IF_AT_LEAST, _X32_BIT, _END_PROCESS))
    parts += [_when(_JUMP_IF_EQUAL, number, _fail(errno.EPERM)) for number in _column(_DENIED, chosen)]
    parts += [_when(_JUMP_IF_EQUAL, number, _fail(errno.ENOSYS)) for number in _column(_MISSING, chosen)]
    parts += [_when(_JUMP_IF_EQUAL, number, _fail(errno.EOPNOTSUPP)) for number in _column(_UNSUPPORTED, chosen)]
    for *numbers, place in _MODES.values():
        number = numbers[chosen.column]
        if number is not None:
            parts.append(_call(number, place, [_when(_JUMP_IF_ANY, _SET_ID, _fail(errno.EPERM))]))
    parts += [
        _call(chosen.clone, 0, [_when(_JUMP_IF_ANY, _NEW_NAMESPACES, _fail(errno.EPERM))]),
        _call(chosen.ioctl, 1, [_when(_JUMP_IF_EQUAL, request, _fail(errno.EPERM)) for request in _REQUESTS]),
        _call(chosen.socketpair, 0, [_unless(_JUMP_IF_EQUAL, _AF_UNIX, _fail(errno.EAFNOSUPPORT))]),
        _call(chosen.socket, 0, [_among(families, _fail(errno.EAFNOSUPPORT))]),
        _call(chosen.socket, 0, [_unless_equal(_AF_UNIX, _internet_sockets())]),
        _call(
            chosen.setsockopt,
            1,
            [_if_equal(_SOL_TCP, _argument(2) + _when(_JUMP_IF_EQUAL, _TCP_ULP, _fail(errno.ENOENT)))],
        ),
        _instruction(_RETURN, _ALLOW),
    ]
    return b''.join(parts)


def _column(table: Mapping[str, tuple[int, int | None]], chosen: _Architecture) -> list[int]:
    return [number for numbers in table.values() if (number := numbers[chosen.column]) is not None]


def _fail(number: int) -> int:
    return _FAIL | number


def _instruction(code: int, value: int, *, if_true: int = 0, if_false: int = 0) -> bytes:
    """Return a `struct sock_filter`; jumps are relative to the next instruction."""
    return struct.pack('=HBBI', code, if_true, if_false, value)


def _when(jump: int, value: int, action: int) -> bytes:
    """Return the instructions that end the filter with `action` if the test is true."""
    return _instruction(jump, value, if_false=1) + _instruction(_RETURN, action)


def _unless(jump: int, value: int, action: int) -> bytes:
    """Return the instructions that end the filter with `action` if the test is false."""
    return _instruction(jump, value, if_true=1) + _instruction(_RETURN, action)


def _among(values: Iterable[int], action: int) -> bytes:
    """Return the instructions that end the filter with `action` if the loaded value is not in `values`."""
    listed = [*values]
    tests = [_instruction(_JUMP_IF_EQUAL, value, if_true=len(listed) - place) for place, value in enumerate(listed)]
    return b''.join(tests) + _instruction(_RETURN, action)


def _internet_sockets() -> bytes:
    """Return the instructions that end the filter for all internet sockets except TCP and UDP."""
    kind = _argument(1) + _instruction(_AND, _SOCK_TYPE_MASK) + _among((_SOCK_STREAM, _SOCK_DGRAM), _fail(errno.EPERM))
    return kind + _argument(2) + _among(_PROTOCOLS, _fail(errno.EPROTONOSUPPORT))


def _argument(place: int) -> bytes:
    """Return the instruction that loads an argument of the call."""
    return _instruction(_LOAD, _ARGUMENTS[place])


def _if_equal(value: int, body: bytes) -> bytes:
    """Return instructions that run only if the loaded value is `value`."""
    return _instruction(_JUMP_IF_EQUAL, value, if_false=len(body) // 8) + body


def _unless_equal(value: int, body: bytes) -> bytes:
    """Return instructions that run only if the loaded value is not `value`."""
    return _instruction(_JUMP_IF_EQUAL, value, if_true=len(body) // 8) + body


def _call(number: int, argument: int, checks: Iterable[bytes]) -> bytes:
    """Return the instructions that check an argument of one call and then load the call number again."""
    body = _argument(argument) + b''.join(checks) + _instruction(_LOAD, _NUMBER)
    return _instruction(_JUMP_IF_EQUAL, number, if_false=len(body) // 8) + body
