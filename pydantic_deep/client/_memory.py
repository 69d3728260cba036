"""What agents remember across conversations."""

from __future__ import annotations

from pydantic_deep.views import MemoryFileRevision

from ._connection import Connection, present, segment, segments


class MemoryClient:
    """What agents remember for the owner of the key: `client.memory`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self, agent: str) -> list[MemoryFileRevision]:
        """Return the latest revision of each file, the notebook first. Empty if agents of the server have no memory."""
        return [each async for each in self._connection.items(MemoryFileRevision, _path(agent))]

    async def history(self, agent: str, file: str) -> list[MemoryFileRevision]:
        """Return the revisions of a file with their contents and writers, newest first; at most 1,000.

        Raises:
            ApiError: There is no such file or agent, or agents of the server have no memory (404).
        """
        return [each async for each in self._connection.items(MemoryFileRevision, _path(agent, file))]

    async def restore(self, agent: str, file: str, number: int | None = None) -> MemoryFileRevision:
        """Restore a revision of a file as its latest one, and return that. The agent sees it from its next turn on.

        Args:
            agent: The name of the agent.
            file: The name of the file, such as `MEMORY.md`.
            number: The number of the revision; 0 is the state before the first, so it deletes the file. Default: the one
                before the latest, so a second call undoes the first.

        Raises:
            ApiError: There is no such revision (404), or the file was written in the meantime (409).
        """
        return await self._connection.post(MemoryFileRevision, _path(agent, file), present({'number': number}))


def _path(agent: str, file: str | None = None) -> str:
    path = f'/api/agents/{segment("agent", agent)}/memory'
    return path if file is None else f'{path}/{segments("file", file)}'
