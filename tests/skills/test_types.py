"""Sources of skills that are refused, and diagnostics as text."""

from __future__ import annotations

import pytest

from pydantic_deep import SkillDirectory
from pydantic_deep.skills import validate_skill

from .conftest import WriteSkill


def test_grants_need_trust() -> None:
    """An untrusted directory cannot have grants."""
    with pytest.raises(ValueError, match='cannot have grants'):
        SkillDirectory('x', trusted=False, grants=True)


def test_diagnostic_is_one_line(write_skill: WriteSkill) -> None:
    (found,) = validate_skill(write_skill('pdf', 'description: Use this when x\nversion: 1'))
    assert str(found).endswith(
        "pdf/SKILL.md:4: error: 'version' is not a skill field. Move it to `metadata`, or remove it. [unknown-field]"
    )
