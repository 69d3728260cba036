"""Skills as a capability for any pydantic-ai agent, with any number of skills."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from typing import cast

from pydantic_ai import AgentToolset, RunContext, ToolDefinition
from pydantic_ai.capabilities import AbstractCapability, ValidatedToolArgs
from pydantic_ai.exceptions import ModelRetry, ToolFailed, UserError
from pydantic_ai.messages import ModelMessage, ToolCallPart

from pydantic_deep._capabilities.base import BaseCapability
from pydantic_deep._checks import check_least
from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._messages.grants import Grant, commands_of, is_granted
from pydantic_deep._messages.loaded_skills import loaded_skill
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.extensions import SupportsApprovalGate, find_capabilities
from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.paths import display_path, is_within, resolve_path
from pydantic_deep_backends.resolving import canonical_path

from ._backend import BackendScan
from ._discovery import DiscoveredSkills, find_skill
from ._files import BACKEND_FAILURES, SkillUnreadableError, load, place_of
from ._history import ROOM_ID, carried_over, grants_in
from ._host_paths import file_paths
from ._library import Library, SkillIndex, sort_sources
from ._render import render_question, render_unknown
from ._toolset import TOOLSET_ID, RunSkills, function_toolset, is_asked_for, is_granted_by_code
from ._types import BackendSkills, Skill, SkillCatalog, SkillSource

MAX_CATALOG_TOKENS = 2_000
"""Maximum size of the catalogue in tokens, enough for about 45 skills with their descriptions."""

MIN_CATALOG_TOKENS = 50
"""Minimum value of `max_catalog_tokens`, which even the shortest catalogue needs."""


class SkillNotFoundError(DeepAgentError, LookupError):
    """No skill has the given name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


@dataclass
class Skills(BaseCapability[object]):
    """Skills that the model loads on demand: `Agent(model, capabilities=[Skills(['./skills'])])`.

    Directories are scanned once, in a thread, when the first run starts; create a new `Skills` to include later
    additions. The immutable result is shared by all runs. Instructions are read when they are loaded, so edits take
    effect. Without skills, the agent has neither a catalogue nor a tool.

    Skills with errors are skipped, with a diagnostic in `await skills.catalog()` and in the log `pydantic_deep`.
    Nothing in a skill is executed by this capability; the model may run scripts with `execute` if the backend exposes
    them.

    Commands that a skill lists in `allowed-tools` run without approval only with `SkillDirectory(grants=True)`, or if a
    person allows them when the skill is loaded. A tool name without a command pattern grants nothing.

    Skill files that the tools of a run could change are protected: with approvals, a person decides; without approvals,
    changes by tools with the metadata `{'effect': 'write'}` are refused. Shell commands are not checked, so isolate
    them.

    Raises:
        UserError: At the start of a run, if a directory is missing, or the run has no backend for `BackendSkills`.
        ValueError: A skill created in code has an invalid name, no description or no instructions.
    """

    skills: Sequence[SkillSource] = ()
    """Directories with skills, `Skill` objects, and `BackendSkills`. If several skills have the same name, the order of
    precedence is by scope (code, project, user, bundled), then by source, with those of the backend last.
    """
    id: str | None = field(default=ROOM_ID, kw_only=True)
    max_catalog_tokens: int = field(default=MAX_CATALOG_TOKENS, kw_only=True)
    """Maximum size of the catalogue, at four characters per token. Entries that do not fit are shortened, then omitted.
    """
    _library: Library = field(init=False, repr=False, compare=False)
    _in_backend: tuple[BackendSkills, ...] = field(init=False, repr=False, compare=False)
    _index: SkillIndex | None = field(default=None, init=False, repr=False, compare=False)
    _run: RunSkills | None = field(default=None, init=False, repr=False, compare=False)
    _protected: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.skills, (str, os.PathLike)):
            raise TypeError(f'`skills` is {self.skills!r}. Pass a sequence: `[{str(self.skills)!r}]`.')
        check_least('max_catalog_tokens', self.max_catalog_tokens, MIN_CATALOG_TOKENS)
        directories, skills, in_backend = sort_sources(self.skills)
        self._in_backend = tuple(in_backend)
        self._library = Library(directories=directories, skills=skills, max_catalog_tokens=self.max_catalog_tokens)

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Skills:
        """Return one capability with the skills of all."""
        instances = [cast('Skills', capability) for capability in capabilities]
        skills = [source for capability in instances for source in capability.skills]
        return cls(skills, id=instances[-1].id, max_catalog_tokens=instances[-1].max_catalog_tokens)

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the names of the skills with instructions in the replaced messages."""
        return carried_over(replaced)

    async def catalog(self) -> SkillCatalog:
        """Return the skills from code and local directories, with diagnostics. Skills in backends are found per run.

        Raises:
            UserError: A directory is missing.
        """
        return (await self._library.index()).catalog

    async def load(self, name: str, *, backend: BackendProtocol | None = None) -> str:
        """Return a skill as prompt text, for a user who requests it by name. This includes hidden skills.

        Args:
            name: The name of the skill.
            backend: The backend of the run that will receive the prompt.

        Raises:
            SkillNotFoundError: No skill has this name.
            ValueError: The skill's file can no longer be read.
            UserError: A directory is missing.
        """
        index = await self._find_skills(backend)
        skill = find_skill(index.catalog, name)
        if skill is None:
            raise SkillNotFoundError(name, render_unknown(name, index.catalog.skills))
        run = RunSkills(catalog=index.catalog, source=backend, log=self._library.log)
        loaded = await load(skill, place_of(skill, backend))
        run.log(loaded.diagnostics)
        return loaded_skill(skill.name, await run.render(skill, loaded.body))

    async def for_run(self, ctx: RunContext[object]) -> Skills:
        """Return an instance for this run, with the grants of skills that its history has loaded."""
        source: object = getattr(ctx.deps, 'backend', None)  # by name, as deps may be any object
        if source is None and ctx.workspace.attached:
            source = ctx.workspace
        if source is None and self._in_backend:
            raise UserError(
                '`BackendSkills` has no backend to scan. Pass deps with a `backend`, or `workspace=` to the run.'
            )
        run = copy(self)
        run._index = index = await self._find_skills(cast('BackendProtocol | None', source))
        grants = grants_in(ctx.messages) if index.allowing else {}
        run._run = RunSkills(catalog=index.catalog, source=source, log=self._library.log, grants=grants)
        run._protected = tuple([path async for path in self._paths_in(source)])
        return run

    def get_instructions(self) -> str | None:
        """Return the catalogue; `None` if there are no skills."""
        return self._index.catalogue.text or None if self._index is not None else None

    def get_toolset(self) -> AgentToolset[object] | None:
        """Return the toolset with `load_skill`; `None` if there are no skills."""
        run, index = self._run, self._index
        if run is None or index is None or not index.catalog.skills:
            return None
        return RunToolset(function_toolset(index.catalogue.is_searched), lambda ctx: run)

    async def hidden_tool_names(self, ctx: RunContext[object]) -> frozenset[str]:
        """Return the name of the tool, which a run without skills lacks."""
        return frozenset({'load_skill'})

    @property
    def protected_paths(self) -> Sequence[str]:
        """The canonical paths of skills in the backend of the run. Changing them needs approval."""
        return self._protected

    def is_preapproved(self, *, call: ToolCallPart, tool_def: ToolDefinition, args: Mapping[str, object]) -> bool:
        """Return whether a loaded skill has a grant for this call.

        A grant is valid while the skill exists, still requests the command, and may still have grants.
        """
        run, index = self._run, self._index
        if run is None or index is None or not run.grants:
            return False
        return any(
            is_granted(
                _live_commands(run.grants[skill.name], skill), tool_def.name, args, tool_def.parameters_json_schema
            )
            and run.may_grant(skill)
            for skill in index.allowing
            if skill.name in run.grants
        )

    async def preview(
        self, ctx: RunContext[object], *, call: ToolCallPart, tool_def: ToolDefinition, args: dict[str, object]
    ) -> Preview | None:
        """Return the grant to approve when a skill is loaded, or the reason why loading it would fail; `None` if there
        is neither.
        """
        run, index, name, file = self._run, self._index, args.get('name'), args.get('file')
        if run is None or index is None or tool_def.toolset_id != TOOLSET_ID or not (name and isinstance(name, str)):
            return None
        try:
            skill = run.find(name)
            if file and isinstance(file, str):
                await run.read(skill, file)
                return None
        except (ModelRetry, ToolFailed) as error:
            return Preview(kind='call', failure=error.message)
        if skill not in index.allowing or is_granted_by_code(skill) or not run.may_grant(skill):
            return None
        if not is_asked_for(ctx):
            return None
        try:
            commands = (await load(skill, run.place(skill))).commands
        except SkillUnreadableError:
            return None  # loading the skill reports the error in more detail
        return Preview(kind='call', text=render_question(skill.name, commands)) if commands else None

    async def after_tool_validate(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
    ) -> ValidatedToolArgs:
        """Refuse changes of skill files, unless a person has approved them or approvals will ask for it."""
        if self._protected and (tool_def.metadata or {}).get('effect') == 'write':
            path: object = args.get('path')
            is_asked = (
                ctx.tool_call_approved
                or tool_def.kind == 'unapproved'
                or bool(find_capabilities(ctx, SupportsApprovalGate))
            )
            if isinstance(path, str) and not is_asked:
                await self._refuse_protected(path)
        return args

    async def _refuse_protected(self, path: str) -> None:
        # Without a backend, nothing is protected.
        backend = cast('BackendProtocol', self._run.source if self._run else None)
        try:
            real = await canonical_path(backend, path)
        except BACKEND_FAILURES:
            return  # the tool reports the error in more detail
        if any(is_within(real, protected) or is_within(protected, real) for protected in self._protected):
            raise ToolFailed(f'{display_path(path)} belongs to a skill. Only a person may allow changes.')

    async def _find_skills(self, backend: BackendProtocol | None) -> SkillIndex:
        """Return the skills of this capability together with those in a backend."""
        index = await self._library.index()
        if backend is None or not self._in_backend:
            return index
        discovered = DiscoveredSkills(
            skills=list(index.discovered.skills), diagnostics=list(index.discovered.diagnostics)
        )
        for source in self._in_backend:
            scan = BackendScan(backend=backend, source=source)
            await scan.run()
            discovered.add(scan.skills, scan.diagnostics, trusted=source.trusted)
        return self._library.build_index(discovered)

    async def _paths_in(self, source: object) -> AsyncIterator[str]:
        """Yield the canonical paths in the backend of a run that contain skills, or may contain them."""
        for root in self._library.roots:
            for path in file_paths(root, source):
                yield path
        backend = cast('BackendProtocol', source)
        for skills in self._in_backend:
            with suppress(*BACKEND_FAILURES):  # unreachable files cannot be changed
                yield await backend.realpath(resolve_path(skills.path, await backend.working_dir()))


def _live_commands(grant: Grant, skill: Skill) -> Sequence[str]:
    """Return the valid commands of a grant: the code may no longer grant them, or the skill may no longer list them."""
    if grant.by == 'code' and not is_granted_by_code(skill):
        return ()
    return [command for command in commands_of(skill.allowed_tools) if command in grant.commands]
