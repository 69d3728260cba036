"""`import_agents`: the agents that a command line names as `package.module:attribute`."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias, cast

from pydantic_ai.agent import AbstractAgent

from pydantic_deep.errors import DeepAgentError
from pydantic_deep.versions import VersionedAgent

AnyAgent: TypeAlias = AbstractAgent[Any, Any] | VersionedAgent[Any, Any]
"""An agent with or without a store."""


class InvalidAgentsError(DeepAgentError, ValueError):
    """A reference to agents that is invalid, or agents that cannot be served."""


def import_agents(reference: str) -> Mapping[str, AnyAgent]:
    """Return the agents that `package.module:attribute` refers to. Also imports from the working directory.

    Raises:
        InvalidAgentsError: The module or attribute does not exist, or it is neither an agent nor a mapping of agents.
    """
    module_name, colon, attribute = reference.partition(':')
    if not (module_name and colon and attribute.isidentifier()):
        raise InvalidAgentsError(f'{reference!r} is not a reference to agents. Write `package.module:attribute`.')
    sys.path.insert(0, str(Path.cwd()))  # installed programs do not have the working directory in it
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f'{module_name}.'.startswith(f'{error.name}.'):
            raise
        raise InvalidAgentsError(
            f'There is no module {module_name!r} to import agents from. Run the command where it can be imported.'
        ) from None
    if not hasattr(module, attribute):
        names = [name for name, value in vars(module).items() if _are_agents(_by_name(value).values())]
        raise InvalidAgentsError(
            f'The module {module_name!r} has no {attribute!r}. Its agents: {", ".join(names) or "none"}.'
        )
    agents = _by_name(getattr(module, attribute))
    if agents and not _are_agents(agents.values()):
        raise InvalidAgentsError(f'{reference!r} is neither an agent nor a dictionary of agents by name.')
    return cast('Mapping[str, AnyAgent]', agents)


def _by_name(value: object) -> Mapping[object, object]:
    return cast('Mapping[object, object]', value) if isinstance(value, Mapping) else {_name_of(value): value}


def _are_agents(values: Collection[object]) -> bool:
    return bool(values) and all(isinstance(value, AbstractAgent | VersionedAgent) for value in values)


def _name_of(value: object) -> str:
    return (cast('AbstractAgent[Any, Any]', value).name if isinstance(value, AbstractAgent) else None) or 'agent'
