"""What the first process of a sandbox reports, and what its silence means."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import SandboxUnavailableError
from pydantic_deep_backends.sandbox._bwrap import SandboxCommand


def test_a_sandbox_that_never_began_is_unavailable_and_no_exit_code() -> None:
    command = object.__new__(SandboxCommand)

    with pytest.raises(SandboxUnavailableError, match='no permission'):
        command.exit_code(b'', 'bwrap: no permission')
