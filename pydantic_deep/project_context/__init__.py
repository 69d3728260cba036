"""The instructions of a project, from its `AGENTS.md` files, for any pydantic-ai agent."""

from ._capability import ProjectContext

__all__ = ('ProjectContext',)
