"""What the agent plugs in: skills as one capability, for any pydantic-ai agent, however many skills there are."""

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

from pydantic_deep._messages.deferred_metadata import Preview
from pydantic_deep._messages.grants import Grant, commands_of, is_granted
from pydantic_deep._messages.summary_metadata import CarriedOver
from pydantic_deep._toolsets.run_toolset import RunToolset
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.extensions import SupportsApprovalGate, find_capabilities
from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.paths import display_path, is_within, resolve_path
from pydantic_deep_backends.resolving import canonical_path

from ._backend import BackendScan
from ._discovery import Found, find_skill
from ._files import BACKEND_FAILURES, SkillUnreadableError, load, place_of
from ._history import ROOM_ID, carried_over, grants_in
from ._host_paths import file_paths
from ._library import Library, SkillIndex, sort_sources
from ._render import render_question, render_unknown
from ._toolset import TOOLSET_ID, RunSkills, function_toolset, is_asked_for, is_granted_by_code
from ._types import BackendSkills, Skill, SkillCatalog, SkillSource

MAX_CATALOG_TOKENS = 2_000
"""How large the catalogue may be: some 45 skills with their descriptions."""

MIN_CATALOG_TOKENS = 50
"""What even the shortest catalogue needs."""


class SkillNotFoundError(DeepAgentError, LookupError):
    """There is no skill of that name.

    Attributes:
        name: The name.
    """

    def __init__(self, name: str, message: str) -> None:
        self.name = name
        super().__init__(message)


@dataclass
class Skills(AbstractCapability[object]):
    """Skills that the model loads when it needs them: `Agent(model, capabilities=[Skills(['./skills'])])`.

    Directories are looked at when the first run starts, in a thread, and not again: make another `Skills` for what is
    added later. What is found is shared by all runs, since it does not change. Instructions are read when they are
    loaded, so an edited skill is used as edited. Without skills there is neither a catalogue nor a tool.

    What cannot be used is skipped with a diagnostic, in `await skills.catalog()` and in the log `pydantic_deep`.
    Nothing of a skill is ever run here: the model may run a script by `execute`, if the backend shows it there.

    Commands that `allowed-tools` of a skill name by pattern run without asking only if `SkillDirectory(grants=True)` says
    so, or a person when the skill is loaded. A tool by its name alone grants nothing.

    Files of skills that the tools of a run could change are guarded: approvals ask a person, and without them a
    change by a tool whose metadata say `{'effect': 'write'}` is refused. A shell is not looked at; isolate it.

    Raises:
        UserError: At the start of a run, if a directory is missing, or there is no backend for `BackendSkills`.
        ValueError: A skill made in code has no name, description or instructions that could be used.
    """

    skills: Sequence[SkillSource] = ()
    """Directories with skills, `Skill` objects, and `BackendSkills`. Of two skills of one name that of the nearer
    scope is used (code, project, user, bundled), then that of the earlier source, those of the backend last."""
    id: str | None = field(default=ROOM_ID, kw_only=True)
    max_catalog_tokens: int = field(default=MAX_CATALOG_TOKENS, kw_only=True)
    """The size of the catalogue, at four characters a token. What does not fit is shortened, then left out."""
    _library: Library = field(init=False, repr=False, compare=False)
    _in_backend: tuple[BackendSkills, ...] = field(init=False, repr=False, compare=False)
    _index: SkillIndex | None = field(default=None, init=False, repr=False, compare=False)
    _run: RunSkills | None = field(default=None, init=False, repr=False, compare=False)
    _protected: tuple[str, ...] = field(default=(), init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.skills, (str, os.PathLike)):
            raise TypeError(f'`skills` is {self.skills!r}. Pass a sequence: `[{str(self.skills)!r}]`.')
        if self.max_catalog_tokens < MIN_CATALOG_TOKENS:
            raise ValueError(f'`max_catalog_tokens` is {self.max_catalog_tokens}. Use at least {MIN_CATALOG_TOKENS}.')
        directories, skills, in_backend = sort_sources(self.skills)
        self._in_backend = tuple(in_backend)
        self._library = Library(directories=directories, skills=skills, max_catalog_tokens=self.max_catalog_tokens)

    @classmethod
    def combine(cls, capabilities: Sequence[AbstractCapability[object]]) -> Skills:
        """Return one capability with the skills of all."""
        given = [cast('Skills', capability) for capability in capabilities]
        skills = [source for capability in given for source in capability.skills]
        return cls(skills, id=given[-1].id, max_catalog_tokens=given[-1].max_catalog_tokens)

    def carry_over(self, ctx: RunContext[object], replaced: Sequence[ModelMessage]) -> CarriedOver:
        """Return the names of the skills whose instructions a summary replaces."""
        return carried_over(replaced)

    async def catalog(self) -> SkillCatalog:
        """Return the skills of code and of this machine with their diagnostics; those of backends are a run's.

        Raises:
            UserError: A directory is missing.
        """
        return (await self._library.index()).catalog

    async def load(self, name: str, *, backend: BackendProtocol | None = None) -> str:
        """Return a skill as text for a prompt, for a user who asks for it by name; hidden ones too.

        Args:
            name: Its name.
            backend: The backend of the run that the prompt is for.

        Raises:
            SkillNotFoundError: There is none of that name.
            ValueError: It cannot be read any more.
            UserError: A directory is missing.
        """
        index = await self._found(backend)
        skill = find_skill(index.catalog, name)
        if skill is None:
            raise SkillNotFoundError(name, render_unknown(name, index.catalog.skills))
        run = RunSkills(catalog=index.catalog, source=backend, log=self._library.log)
        loaded = await load(skill, place_of(skill, backend))
        run.log(loaded.diagnostics)
        return f'<skill name="{skill.name}">\n{await run.render(skill, loaded.body)}\n</skill>'

    async def for_run(self, ctx: RunContext[object]) -> Skills:
        """Return this run's instance, which knows what the history has loaded."""
        source: object = getattr(ctx.deps, 'backend', None)  # by name: deps may be anything
        if source is None and ctx.workspace.attached:
            source = ctx.workspace
        if source is None and self._in_backend:
            raise UserError(
                '`BackendSkills` has no backend to look at. Pass deps with a `backend`, or `workspace=` to the run.'
            )
        run = copy(self)
        run._index = index = await self._found(cast('BackendProtocol | None', source))
        grants = grants_in(ctx.messages) if index.allowing else {}
        run._run = RunSkills(catalog=index.catalog, source=source, log=self._library.log, grants=grants)
        run._protected = tuple([path async for path in self._paths_in(source)])
        return run

    def get_instructions(self) -> str | None:
        """Return the catalogue, if there are skills."""
        return self._index.catalogue.text or None if self._index is not None else None

    def get_toolset(self) -> AgentToolset[object] | None:
        """Return the toolset with `load_skill`, if there are skills."""
        run, index = self._run, self._index
        if run is None or index is None or not index.catalog.skills:
            return None
        return RunToolset(function_toolset(index.catalogue.is_searched), lambda ctx: run)

    @property
    def protected_paths(self) -> Sequence[str]:
        """The canonical paths of the run's backend under which skills are: only a person may let them be changed."""
        return self._protected

    def is_preapproved(self, *, call: ToolCallPart, tool_def: ToolDefinition, args: Mapping[str, object]) -> bool:
        """Return whether a loaded skill was granted to let this call run.

        What was granted holds as long as the skill is there, still names it, and is still allowed to.
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
        """Return what a person is asked to grant with a skill that is to be loaded, or why loading it would fail;
        `None` for neither.
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
            return None  # loading says better what is wrong
        return Preview(kind='call', text=render_question(skill.name, commands)) if commands else None

    async def after_tool_validate(
        self,
        ctx: RunContext[object],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
    ) -> ValidatedToolArgs:
        """Refuse to change files of skills, unless a person allowed it or approvals will ask one."""
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
        backend = cast('BackendProtocol', self._run.source if self._run else None)  # else nothing would be protected
        try:
            real = await canonical_path(backend, path)
        except BACKEND_FAILURES:
            return  # the tool says better what is wrong with the path
        if any(is_within(real, guarded) or is_within(guarded, real) for guarded in self._protected):
            raise ToolFailed(f'{display_path(path)} belongs to a skill. Only a person may let it be changed.')

    async def _found(self, backend: BackendProtocol | None) -> SkillIndex:
        """Return the skills that there are with a backend."""
        index = await self._library.index()
        if backend is None or not self._in_backend:
            return index
        found = Found(skills=list(index.found.skills), diagnostics=list(index.found.diagnostics))
        for source in self._in_backend:
            scan = BackendScan(backend=backend, source=source)
            await scan.run()
            found.add(scan.skills, scan.diagnostics, trusted=source.trusted)
        return self._library.build_index(found)

    async def _paths_in(self, source: object) -> AsyncIterator[str]:
        """Yield the canonical paths in the backend of a run under which there are skills, or could be."""
        for root in self._library.roots:
            for path in file_paths(root, source):
                yield path
        backend = cast('BackendProtocol', source)
        for skills in self._in_backend:
            with suppress(*BACKEND_FAILURES):  # what cannot be reached cannot be changed
                yield await backend.realpath(resolve_path(skills.path, await backend.working_dir()))


def _live_commands(grant: Grant, skill: Skill) -> Sequence[str]:
    """Return what of a grant holds: code may grant no longer, and the skill may name less."""
    if grant.by == 'code' and not is_granted_by_code(skill):
        return ()
    return [command for command in commands_of(skill.allowed_tools) if command in grant.commands]
