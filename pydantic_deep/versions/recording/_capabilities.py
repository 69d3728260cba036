"""Helpers that inspect the capabilities of an agent: their origin, their hooks, and a missing `ToolFailures`."""

from __future__ import annotations

import warnings
from typing import Any

from pydantic_ai.agent import AbstractAgent
from pydantic_ai.capabilities import AbstractCapability

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.failures import ToolFailures
from pydantic_deep.filesystem import Filesystem
from pydantic_deep.versions.files._run_files import UnversionedFilesWarning
from pydantic_deep_backends import BackendProtocol


def is_framework(capability: AbstractCapability[Any]) -> bool:
    """Return whether a capability belongs to this framework, or is added by pydantic-ai itself."""
    return type(capability).__module__.startswith(('pydantic_deep.', 'pydantic_ai.capabilities._'))


def overrides(capability: AbstractCapability[Any], *names: str) -> bool:
    """Return whether a capability overrides any of these methods."""
    bases = (AbstractCapability, BaseCapability)
    return any(getattr(type(capability), name) not in [getattr(base, name) for base in bases] for name in names)


def missing_failures(agent: AbstractAgent[Any, Any]) -> list[ToolFailures]:
    """Return a `ToolFailures` capability if the agent has none, so that an exception of a tool never ends a turn."""
    return [] if any(isinstance(leaf, ToolFailures) for leaf in _leaves_of(agent)) else [ToolFailures()]


def warn_of_other_files(agent: AbstractAgent[Any, Any], deps: object) -> None:
    """Warn if the file tools of an agent do not work on the files of its deps, which versions contain."""
    if not isinstance(deps, DeepAgentDeps):
        return
    for leaf in _leaves_of(agent):
        given = leaf.backend if isinstance(leaf, Filesystem) else None
        if isinstance(given, BackendProtocol) and given is not deps.backend:
            warnings.warn(
                f'The files of `Filesystem(backend={given!r})` are not versioned: versions have those of the deps. Omit '
                '`backend` there, and pass it to `create`.',
                UnversionedFilesWarning,
                stacklevel=2,
            )


def _leaves_of(agent: AbstractAgent[Any, Any]) -> list[object]:
    leaves: list[object] = []
    agent.root_capability.apply(leaves.append)
    return leaves
