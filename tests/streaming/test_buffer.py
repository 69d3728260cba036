"""`WindowedBuffer`: texts of any length in a bounded amount of memory."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.store import open_store
from pydantic_deep.streaming import AssetSpill, FileSpill, Spill, WindowedBuffer

pytestmark = pytest.mark.anyio


class FailingSpill:
    """Fails the given number of times, and stores nothing when it fails."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.written = bytearray()

    async def write(self, data: bytes) -> None:
        if self.failures:
            self.failures -= 1
            raise OSError(28, 'No space left on device')
        self.written += data

    async def read(self) -> bytes:
        return bytes(self.written)

    async def aclose(self) -> None: ...


def open_files() -> int:
    gc.collect()  # other tests of the worker may have left garbage with open files
    return len(os.listdir('/proc/self/fd'))


def test_spill_classes_implement_the_protocol() -> None:
    assert issubclass(FileSpill, Spill)
    assert issubclass(AssetSpill, Spill)


@given(st.lists(st.text(max_size=30), max_size=30), st.integers(1, 40))
async def test_text_is_read_back_completely(texts: list[str], window_bytes: int) -> None:
    """004-30, C27: with any window, for characters of any length and lone surrogates."""
    buffer = WindowedBuffer(window_bytes=window_bytes)
    peak = 0
    for text in texts:
        await buffer.append(text)
        peak = max(peak, buffer.memory_bytes)

    assert peak <= window_bytes
    assert await buffer.read() == ''.join(texts)
    assert buffer.size_bytes == len(''.join(texts).encode())
    await buffer.aclose()


async def test_lone_surrogate_is_read_back() -> None:
    buffer = WindowedBuffer(window_bytes=1)
    await buffer.append('a\ud83d')
    await buffer.append('b')

    assert await buffer.read() == 'a\ud83db'
    await buffer.aclose()


async def test_short_text_stays_in_memory() -> None:
    before = open_files()
    buffer = WindowedBuffer(window_bytes=10)
    await buffer.append('0123456789')

    assert (buffer.memory_bytes, buffer.spilled_bytes) == (10, 0)
    assert open_files() == before
    assert await buffer.read() == '0123456789'
    await buffer.aclose()


async def test_memory_is_bounded_by_the_window() -> None:
    """004-30: ten megabytes through a window of four kilobytes, in few writes."""
    spill = FailingSpill(0)
    buffer = WindowedBuffer(window_bytes=4096, spill=spill)
    peak = 0
    for _ in range(10_000):
        await buffer.append('x' * 1000)
        peak = max(peak, buffer.memory_bytes)

    assert peak <= 4096
    assert buffer.size_bytes == len(await buffer.read()) == 10_000_000


async def test_text_can_be_appended_after_a_read() -> None:
    buffer = WindowedBuffer(window_bytes=4)
    await buffer.append('abcdefgh')
    assert await buffer.read() == 'abcdefgh'
    await buffer.append('ijklmnop')

    assert await buffer.read() == 'abcdefghijklmnop'
    await buffer.aclose()


async def test_failed_spill_neither_loses_nor_duplicates_text() -> None:
    buffer = WindowedBuffer(window_bytes=4, spill=FailingSpill(2))
    with pytest.raises(OSError, match='No space'):
        await buffer.append('abcde')
    with pytest.raises(OSError, match='No space'):
        await buffer.append('f')
    await buffer.append('g')

    assert await buffer.read() == 'abcdefg'
    assert buffer.memory_bytes <= 4


async def test_full_disk_keeps_the_earlier_contents_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partial write to a full disk is undone."""
    spill = FileSpill()
    await spill.write(b'abc')
    file = spill._file  # pyright: ignore[reportPrivateUsage]  # a disk cannot be filled in a test

    class HalfFull:
        def write(self, data: memoryview) -> int:
            if len(data) < 4:
                raise OSError(28, 'No space left on device')
            return file.write(data[:2])

        def __getattr__(self, name: str) -> object:
            return getattr(file, name)

    monkeypatch.setattr(spill, '_file', HalfFull())
    with pytest.raises(OSError, match='No space'):
        await spill.write(b'defg')
    monkeypatch.undo()
    await spill.write(b'hij')

    assert await spill.read() == b'abchij'
    await spill.aclose()


@pytest.mark.slow
async def test_file_has_no_name_and_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr('tempfile.tempdir', str(tmp_path))
    before = open_files()
    buffer = WindowedBuffer(window_bytes=4)
    await buffer.append('secret text')

    assert list(tmp_path.iterdir()) == []
    assert open_files() == before + 1
    await buffer.aclose()
    await buffer.aclose()
    assert open_files() == before


async def test_text_spills_to_assets_of_a_store(tmp_path: Path) -> None:
    """C27: overflow goes to assets and is read back from them, by another process too."""
    url = f'sqlite:///{tmp_path}/agents.db'
    text = '北京 🎉 ' * 100
    async with open_store(url) as store:
        spill = AssetSpill(store)
        buffer = WindowedBuffer(window_bytes=64, spill=spill)
        for start in range(0, len(text), 7):
            await buffer.append(text[start : start + 7])
        assert buffer.memory_bytes <= 64
        assert await buffer.read() == text
        await buffer.aclose()

    async with open_store(url) as store:
        records = [await store.asset(digest) for digest in spill.digests]
    contents = b''.join(record.data for record in records)
    assert len(contents) == buffer.spilled_bytes
    assert text.encode().startswith(contents)


def test_window_of_zero_bytes_is_refused() -> None:
    with pytest.raises(ValueError, match='window_bytes=0 is too small'):
        WindowedBuffer(window_bytes=0)


@pytest.mark.slow
async def test_file_is_closed_when_its_buffer_is_garbage_collected() -> None:
    before = open_files()
    buffer = WindowedBuffer(window_bytes=4)
    await buffer.append('secret text')
    assert open_files() == before + 1
    del buffer

    assert open_files() == before
