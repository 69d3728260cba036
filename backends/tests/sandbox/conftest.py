"""Fixtures and helpers for sandbox tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Path]:
    """The path of a program that replaces bwrap."""
    (tmp_path / 'root').mkdir()
    yield tmp_path / 'fake-bwrap'
    assert os.listdir(tmp_path / 'root') == []


def write_program(path: Path, text: str) -> None:
    path.write_text(f'#!/bin/sh\n{text}\n')
    path.chmod(0o755)
