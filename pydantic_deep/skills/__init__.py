"""Skills: folders with a `SKILL.md` that the model loads on demand, for any pydantic-ai agent."""

from ._capability import SkillNotFoundError, Skills
from ._discovery import discover_skills
from ._types import (
    BUNDLED_SKILLS,
    BackendSkills,
    Scope,
    Severity,
    Skill,
    SkillCatalog,
    SkillDiagnostic,
    SkillDirectory,
    SkillSource,
)
from ._validate import validate_skill

__all__ = (
    'BUNDLED_SKILLS',
    'BackendSkills',
    'Scope',
    'Severity',
    'Skill',
    'SkillCatalog',
    'SkillDiagnostic',
    'SkillDirectory',
    'SkillNotFoundError',
    'SkillSource',
    'Skills',
    'discover_skills',
    'validate_skill',
)
