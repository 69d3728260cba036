"""Helpers of the tests in this folder: each rule must fail for a backend that violates it."""

from __future__ import annotations

import pytest

from pydantic_deep_backends import StateBackend, WrapperBackend
from pydantic_deep_backends.conformance import BackendSuite
from pydantic_deep_backends.paths import parse_path

RULES = BackendSuite()

FAILURES = (AssertionError, pytest.fail.Exception)


class PlainBackend(WrapperBackend):
    """Only the members of `BackendProtocol`, like a third-party backend."""

    capabilities = ()

    def __init__(self) -> None:
        super().__init__(StateBackend())
        self.unreadable: set[str] = set()

    async def read_bytes(self, path: str) -> bytes:
        if parse_path(path) in self.unreadable:
            raise PermissionError(13, 'Permission denied', path)
        return await super().read_bytes(path)
