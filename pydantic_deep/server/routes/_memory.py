"""Routes of the memory: its files, their revisions, and undo."""

from __future__ import annotations

from fastapi import APIRouter

from pydantic_deep.memory import Memories, UnknownMemoryError
from pydantic_deep.server.access._ownership import Access
from pydantic_deep.server.http._errors import ServerError, describe_errors, not_found
from pydantic_deep.server.http._json_route import JsonRoute
from pydantic_deep.server.schemas._memory import MemoryFiles, Restore, RevisionList, show_revision
from pydantic_deep.views import MemoryFileRevision

from ._parameters import Runner

router = APIRouter(prefix='/api/agents/{agent}/memory', tags=['memory'], route_class=JsonRoute)


@router.get('', summary='Get what an agent remembers', responses=describe_errors('not_found'))
async def list_memory(agent: str, access: Runner) -> MemoryFiles:
    """The files that the agent has written for the owner of the key, in all conversations."""
    memories = _memories(access, agent)
    if memories is None:
        return MemoryFiles(has_memory=False, items=[])
    return MemoryFiles(has_memory=True, items=[show_revision(each, memories) for each in await memories.current()])


@router.get('/{path:path}', summary='List the revisions of a file', responses=describe_errors('not_found'))
async def list_revisions(agent: str, path: str, access: Runner) -> RevisionList:
    """At most 1,000, with the conversation and the run that wrote them."""
    memories = _memories(access, agent)
    if memories is None:
        raise not_found()
    try:
        found = await memories.history(path)
    except UnknownMemoryError:
        raise not_found() from None
    return RevisionList(items=[show_revision(each, memories) for each in found])


@router.post('/{path:path}', summary='Restore a revision of a file', responses=describe_errors('not_found', 'conflict'))
async def restore_revision(agent: str, path: str, body: Restore, access: Runner) -> MemoryFileRevision:
    """The content becomes the latest revision, so this can be undone too. The agent sees it from its next turn on."""
    memories = _memories(access, agent)
    if memories is None:
        raise not_found()
    from pydantic_ai_harness.memory import MemoryConflictError  # memory needs this optional dependency

    try:
        return show_revision(await memories.undo(path, body.number), memories)
    except UnknownMemoryError:
        raise not_found() from None
    except MemoryConflictError as error:
        raise ServerError('conflict', 'The file was written in the meantime. Read its revisions again.') from error


def _memories(access: Access, agent: str) -> Memories | None:
    """Return the memory of an agent for the caller's owner; `None` if agents have none.

    Raises:
        ServerError: There is no such agent, or the caller may not use it.
    """
    access.agent(agent)
    files = access.state.memory
    return None if files is None else Memories(files=files, owner=access.owner, agent=agent)
