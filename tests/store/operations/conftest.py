"""Fixtures for tests of operations: a store that counts its statements."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, Callable
from typing import ClassVar, TypeVar

import pytest

from pydantic_deep.store import SqlStore, VersionRecord
from pydantic_deep.store._samples import Dialogue
from pydantic_deep.store.engine import Operation, Row, Statement
from pydantic_deep.store.memory import MemoryEngine

T = TypeVar('T')


def recorded(operation: Operation[T], texts: list[str]) -> Operation[T]:
    """Run an operation, and append the text of each of its statements to a list."""
    statement = next(operation)
    while True:
        texts.append(statement.sql)
        rows: list[Row] = yield statement
        try:
            statement = operation.send(rows)
        except StopIteration as stop:
            return stop.value


class CountedEngine(MemoryEngine):
    """In-memory engine that counts statements."""

    texts: ClassVar[list[str]] = []

    async def write(self, operation: Callable[[], Operation[T]]) -> T:
        return await super().write(lambda: recorded(operation(), self.texts))

    async def read(self, operation: Callable[[], Operation[T]]) -> T:
        return await super().read(lambda: recorded(operation(), self.texts))

    @classmethod
    def take(cls) -> int:
        """Return the number of statements since the last call."""
        count = len(cls.texts)
        cls.texts.clear()
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
        before: A part of the statement.
        other: The operation of the other write.
        skipped: Number of earlier statements that contain the text.
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
