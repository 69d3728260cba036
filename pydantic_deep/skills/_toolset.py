"""The tool `load_skill`, which also searches if there are too many skills to list.

The functions are created once for all agents. Each run passes its own skills as deps.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import cast

from pydantic_ai import FunctionToolset, RunContext, ToolReturn
from pydantic_ai.exceptions import ApprovalRequired, ModelRetry, ToolFailed

from pydantic_deep._messages.deferred_metadata import Approved, CallRequest, Edited, parse_answer, parse_request
from pydantic_deep._messages.grants import COMMAND_TOOL, GRANTS_KEY, LOAD_TOOL, Grant
from pydantic_deep._toolsets.tool_schema import ToolSchema
from pydantic_deep.extensions import SupportsGrants, find_capabilities
from pydantic_deep_backends import BackendProtocol
from pydantic_deep_backends.snapshots import digest_of

from ._catalogue import render_line, search_skills
from ._discovery import find_skill
from ._files import Place, SkillUnreadableError, list_files, load, place_of, read_text
from ._history import DIGEST_KEY, SKILL_KEY, is_loaded
from ._host_paths import file_paths, mounted_path
from ._render import Shown, render_files, render_grant, render_question, render_unknown
from ._types import Skill, SkillCatalog, SkillDiagnostic

MAX_RETRIES = 10
"""Maximum number of consecutive calls with an unknown skill name, as in `create_deep_agent`."""


TOOLSET_ID = 'skills'
"""The id of the toolset with `load_skill`."""


@dataclass(kw_only=True)
class RunSkills:
    """The skills of one run."""

    catalog: SkillCatalog
    source: object
    """The backend of the run, or its workspace; `None` if it has neither."""
    log: Callable[[list[SkillDiagnostic]], None]
    """Logs the diagnostics of a loaded file."""
    grants: dict[str, Grant] = field(default_factory=dict[str, Grant])
    """The grants of the skills that the conversation has loaded, by name."""

    def may_grant(self, skill: Skill) -> bool:
        """Return whether a skill may have grants: not if an agent could have written it."""
        if skill.grants is False or isinstance(skill.directory, str):
            return False
        return skill.directory is None or not is_writable(skill.directory, self.source)

    def find(self, name: str) -> Skill:
        """Return a skill by name.

        Raises:
            ModelRetry: No skill has this name.
        """
        skill = find_skill(self.catalog, name)
        if skill is None:
            shown = (skill.name for skill in self.catalog.skills.values() if not skill.is_hidden)
            raise ModelRetry(render_unknown(name, shown))
        return skill

    async def read(self, skill: Skill, file: str) -> str:
        """Return a text file of a skill.

        Raises:
            ModelRetry: The file does not exist.
            ToolFailed: The skill has no files, or the file is not text.
        """
        place = self.place(skill)
        if place is None:
            raise ToolFailed(f'The skill {skill.name!r} has no files.')
        return await read_text(place, skill, file)

    def place(self, skill: Skill) -> Place | None:
        """Return the location of a skill's files."""
        return place_of(skill, cast('BackendProtocol | None', self.source))

    async def render(self, skill: Skill, body: str) -> str:
        """Return the instructions of a skill, followed by the list of its files."""
        place = self.place(skill)
        if place is None:
            return body
        files, is_cut = await list_files(place)
        listing = render_files(skill.name, files, is_cut=is_cut, shown=self._shown(skill))
        return f'{body}\n\n[{listing}]' if listing else body

    def _shown(self, skill: Skill) -> Shown:
        if isinstance(skill.directory, str):
            return Shown(to_files=skill.directory)
        real = os.path.realpath(cast('Path', skill.directory))
        return Shown(to_files=next(file_paths(real, self.source), None), to_commands=mounted_path(real, self.source))


async def load_skill(ctx: RunContext[RunSkills], name: str, file: str | None = None) -> str | ToolReturn[str]:
    """Read a skill, or a file that it names."""
    return await _load(ctx, name, file)


async def load_or_search(
    ctx: RunContext[RunSkills], name: str = '', file: str | None = None, query: str = ''
) -> str | ToolReturn[str]:
    """Find skills by words (query); read a skill, or a file that it names."""
    if name:
        return await _load(ctx, name, file)
    matches = search_skills(ctx.deps.catalog.skills.values(), query)
    if not matches:
        raise ModelRetry(f'No skill has a word of {query!r} in its name or description. Try other words.')
    return '\n'.join(map(render_line, matches))


@cache
def function_toolset(is_searched: bool) -> FunctionToolset[RunSkills]:
    """Return the toolset of `load_skill`, with a parameter `query` if skills are searched. Its deps are `RunSkills`."""
    toolset = FunctionToolset[RunSkills](id=TOOLSET_ID, max_retries=MAX_RETRIES, schema_generator=ToolSchema)
    toolset.add_function(
        load_or_search if is_searched else load_skill, name=LOAD_TOOL, metadata={'effect': 'read', 'trusted': True}
    )
    return toolset


async def _load(ctx: RunContext[RunSkills], name: str, file: str | None) -> str | ToolReturn[str]:
    run = ctx.deps
    skill = run.find(name)
    place = run.place(skill)
    if file:
        return await run.read(skill, file)
    if skill.is_hidden:
        raise ToolFailed(f'Only a person may load the skill {skill.name!r}.')
    try:
        loaded = await load(skill, place)
    except SkillUnreadableError as error:
        raise ToolFailed(f'The skill {skill.name!r} cannot be loaded: {error}.') from error
    run.log(loaded.diagnostics)
    body, digest = loaded.body, digest_of(loaded.body.encode())
    if is_loaded(ctx.messages, skill.name, digest, body):
        return f'The skill {skill.name!r} is already in this conversation.'
    text, metadata = await run.render(skill, body), {SKILL_KEY: skill.name, DIGEST_KEY: digest}
    grant = _grant(ctx, skill, loaded.commands)
    run.grants.pop(skill.name, None)
    if grant is None:
        return ToolReturn(text, metadata=metadata)
    run.grants[skill.name] = grant
    noted = {**metadata, GRANTS_KEY: grant.model_dump(mode='json')}
    return ToolReturn(f'{text}\n\n{render_grant(grant.commands)}', metadata=noted)


def _grant(ctx: RunContext[RunSkills], skill: Skill, commands: tuple[str, ...]) -> Grant | None:
    """Return the grant for a skill that is being loaded; `None` if there is none.

    Raises:
        ApprovalRequired: A person must decide.
    """
    if not commands or not ctx.deps.may_grant(skill):
        return None
    if is_granted_by_code(skill):
        return Grant(commands=commands, by='code')
    if not is_asked_for(cast('RunContext[object]', ctx)):
        return None
    if not ctx.tool_call_approved:
        raise ApprovalRequired
    answer = parse_answer(ctx.tool_call_metadata)
    if not isinstance(answer, Approved | Edited):
        return None  # not created by `answer_approvals`, so it is unknown what was shown
    request = parse_request(answer.request)
    shown = request.preview if isinstance(request, CallRequest) else None
    if shown is None or shown.text != render_question(skill.name, commands):
        raise ApprovalRequired  # the call was approved without this grant
    return Grant(commands=commands, by='person')


def is_granted_by_code(skill: Skill) -> bool:
    """Return whether the commands of a skill are granted by code: by its directory, or because it was created in code."""
    return skill.grants is True or (skill.grants is None and skill.source is None)


def is_asked_for(ctx: RunContext[object]) -> bool:
    """Return whether some calls would need approval that would not need it with a grant."""
    return any(approvals.accepts_grants(ctx, COMMAND_TOOL) for approvals in find_capabilities(ctx, SupportsGrants))


def is_writable(directory: Path | str, source: object) -> bool:
    """Return whether the file tools of a run could change a local directory."""
    return next(file_paths(os.path.realpath(directory), source), None) is not None
