"""Fixtures for tests of operations: a store that counts its statements."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from typing import TypeVar

import pytest

from pydantic_deep.store import SqlStore, VersionRecord
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.memory import MemoryEngine

T = TypeVar('T')


class CountedEngine(MemoryEngine):
    """In-memory engine that counts statements."""

    statements = 0

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        return await super().write(lambda: self._counted(operation))

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        return await super().read(lambda: self._counted(operation))

    def _counted(self, operation: Callable[[], Operation[T]]) -> Operation[T]:
        inner = operation()
        statement: Statement = next(inner)
        while True:
            type(self).statements += 1
            rows: list[Row] = yield statement
            try:
                statement = inner.send(rows)
            except StopIteration as stop:
                return stop.value

    @classmethod
    def take(cls) -> int:
        """Return the number of statements since the last call."""
        count, cls.statements = cls.statements, 0
        return count


@pytest.fixture
async def store() -> AsyncGenerator[SqlStore]:
    async with SqlStore(CountedEngine.open()) as store:
        yield store


def body(number: int) -> bytes:
    """Return a message of 600 bytes that is hard to compress."""
    return b'{"text":"%s"}' % random.Random(number).randbytes(300).hex().encode()


async def grow(dialogue: Dialogue, version: VersionRecord, turns: int) -> VersionRecord:
    for number in range(turns):
        version = await dialogue.add(version, body(2 * number), body(2 * number + 1))
    return version


def interposed(operation: Operation[T], before: str, other: Operation[object], *, skipped: int = 0) -> Operation[T]:
    """Run an operation, and another one before a statement that contains a text, as a concurrent write would.

    Args:
        operation: The operation to run.
        before: The text.
        other: The other operation.
        skipped: Number of statements with the text that come before.
    """
    statement, done = next(operation), False
    while True:
        if not done and before in statement.sql:
            if skipped == 0:
                yield from other
                done = True
            skipped -= 1
        rows: list[Row] = yield statement
        try:
            statement = operation.send(rows)
        except StopIteration as stop:
            assert done, before
            return stop.value


def statements(*texts: str) -> Operation[None]:
    """Return an operation of statements without parameters."""
    for text in texts:
        yield Statement(text)
