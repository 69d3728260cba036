"""The system call filter, interpreted like in the kernel."""

from __future__ import annotations

import errno
import struct

import pytest

from pydantic_deep_backends.sandbox import _seccomp as seccomp


def judged(machine: str, number: int, *arguments: int, network: bool = False, audit: int | None = None) -> int:
    """Return the result of a filter: an interpreter for the few BPF instructions that it uses."""
    own = {'x86_64': 0xC000003E, 'aarch64': 0xC00000B7}[machine]
    full = (*arguments, *[0] * (6 - len(arguments)))
    facts = struct.pack('=IIQ6Q', number, own if audit is None else audit, 0, *full)
    program = seccomp.render_filter(machine, network=network)
    instructions = list(struct.iter_unpack('=HBBI', program))
    place = loaded = 0
    while True:
        code, if_true, if_false, value = instructions[place]
        place += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from('=I', facts, value)
            case 0x54:
                loaded &= value
            case 0x06:
                return value
            case _:
                holds = {0x15: loaded == value, 0x35: loaded >= value, 0x45: bool(loaded & value)}[code]
                place += if_true if holds else if_false


ALLOWED, ENDED, FAILED = 0x7FFF0000, 0x80000000, 0x50000
MACHINES = pytest.mark.parametrize('machine', seccomp.ARCHITECTURES)
SOCKET = {'x86_64': (41, 53), 'aarch64': (198, 199)}


@MACHINES
def test_listed_system_calls_fail_and_others_are_allowed(machine: str) -> None:
    names = [*seccomp._DENIED, *seccomp._MISSING]  # pyright: ignore[reportPrivateUsage]
    unsupported = seccomp.denied_number('fallocate', machine)
    numbers = {seccomp.denied_number(name, machine) for name in names}
    assert len(numbers - {None}) > 55
    missing = {seccomp.denied_number(name, machine) for name in ('clone3', 'memfd_create', 'openat2')}
    for number in range(600):
        expected = ALLOWED if number not in numbers else FAILED | (errno.ENOSYS if number in missing else errno.EPERM)
        if number == unsupported:
            expected = FAILED | errno.EOPNOTSUPP
        # A Unix stream socket, and for other calls the same numbers as arguments.
        if number != SOCKET[machine][0] or expected != ALLOWED:
            assert judged(machine, number, 1) == expected


@MACHINES
def test_programs_of_another_architecture_are_killed(machine: str) -> None:
    for audit in (0x40000003, 0x40000028, 0xC000003E, 0xC00000B7):
        assert (judged(machine, 1, audit=audit) == ALLOWED) == (
            audit == {'x86_64': 0xC000003E}.get(machine, 0xC00000B7)
        )
    assert (judged(machine, 0x40000001) == ENDED) == (machine == 'x86_64')


@MACHINES
def test_child_processes_are_allowed_but_new_namespaces_are_not(machine: str) -> None:
    clone = {'x86_64': 56, 'aarch64': 220}[machine]
    assert judged(machine, clone, 17) == ALLOWED
    assert judged(machine, clone, 0x3D0F00) == ALLOWED  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judged(machine, clone, flag | 17) == FAILED | errno.EPERM


@MACHINES
def test_socket_families_and_types_are_restricted(machine: str) -> None:
    number, pair = SOCKET[machine]
    for family in range(64):
        known = family in (1, 2, 10)
        assert judged(machine, number, family, 0x80001) == (ALLOWED if known else FAILED | errno.EAFNOSUPPORT)
        with_network = judged(machine, number, family, 2, network=True)
        assert with_network == (ALLOWED if family in (2, 10) else FAILED | errno.EAFNOSUPPORT)
        assert judged(machine, pair, family, 1) == (ALLOWED if family == 1 else FAILED | errno.EAFNOSUPPORT)
    for kind in (3, 10, 0x80003, 0x803):
        assert judged(machine, number, 2, kind) == FAILED | errno.EPERM
    assert judged(machine, number, 2 | 1 << 40, 1) == ALLOWED  # the kernel looks only at the low half


@MACHINES
def test_terminal_injection_and_preallocation_ioctls_are_refused(machine: str) -> None:
    ioctl = {'x86_64': 16, 'aarch64': 29}[machine]
    assert judged(machine, ioctl, 0, 0x5401) == ALLOWED
    for request in (0x5412, 0x541C, 0x5423, 0x5412 | 1 << 32, 0x40305828, 0x4030582A, 0x40305839):
        assert judged(machine, ioctl, 0, request) == FAILED | errno.EPERM


@MACHINES
def test_setuid_and_setgid_modes_are_refused(machine: str) -> None:
    places = {'x86_64': {2: 2, 257: 3, 85: 1, 90: 1, 91: 1, 268: 2, 452: 2, 133: 1, 259: 2}}
    for number, place in places.get(machine, {56: 3, 52: 1, 53: 2, 452: 2, 33: 2}).items():
        before = [0] * place
        assert judged(machine, number, *before, 0o1777) == ALLOWED
        for mode in (0o4755, 0o2755, 0o6000):
            assert judged(machine, number, *before, mode) == FAILED | errno.EPERM
