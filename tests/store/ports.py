"""Ports for servers that get their port before they listen."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack

# The system gives ports from 32,768 on to clients, so one of those may be taken until the server listens. A client that connects
# to such a port meanwhile can even be connected to itself. SeaweedFS also listens 10,000 above each of its ports.
_PORTS = range(10_000, 22_000)


def free_port(count: int = 1) -> int:
    """Return the first of `count` free ports in a row, which no client gets from the system."""
    while True:
        first = random.SystemRandom().randrange(_PORTS.start, _PORTS.stop - count)
        with ExitStack() as stack:
            try:
                for port in range(first, first + count):
                    stack.enter_context(socket.create_server(('127.0.0.1', port)))
            except OSError:
                continue
            return first
