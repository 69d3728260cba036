"""Versions: list, compare, restore, branch and merge them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping

from typing_extensions import Unpack

from pydantic_deep.versions import MergeSide
from pydantic_deep.views import Difference, Run, Version, VersionDetails

from ._connection import Connection, present, segment
from ._turn_fields import TurnFields, turn_body


class VersionsClient:
    """The versions of conversations: `client.versions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def log(self, conversation_id: str, *, steps: bool = False) -> AsyncGenerator[Version]:
        """Yield the versions of all branches of a conversation, newest first.

        Args:
            conversation_id: The conversation.
            steps: Include versions within turns.
        """
        path = f'/api/conversations/{segment("conversation_id", conversation_id)}/versions'
        return self._connection.items(Version, path, steps=steps)

    async def get(self, version_id: str) -> VersionDetails:
        """Return a version with its turn so far: calls, requests, files, subagents."""
        return await self._connection.get(VersionDetails, _path(version_id))

    async def diff(self, version_id: str, to: str | None = None) -> Difference:
        """Return the differences from this version to another; without `to`, from the parent to this version."""
        return await self._connection.get(Difference, f'{_path(version_id)}/diff', to=to)

    async def rewind(self, conversation_id: str, version_id: str, *, expected: str | None = None) -> Version:
        """Move the head to a version, from which the next turn continues. Other versions are preserved.

        Args:
            conversation_id: The conversation.
            version_id: The new head: an earlier version, or one of another branch.
            expected: The expected current head. If the head differs, the request fails with 409.
        """
        path = f'/api/conversations/{segment("conversation_id", conversation_id)}/head'
        body = present({'version': version_id, 'expected': expected})
        return await self._connection.post(Version, path, body)

    async def branch(self, version_id: str, prompt: str, **fields: Unpack[TurnFields]) -> Run:
        """Start a turn from any version on a new branch, and return its run as soon as it is stored.

        Args:
            version_id: The version to start from. The head moves only if it is the head.
            prompt: The prompt of the user, not empty.
            **fields: Optional fields of the turn.
        """
        path = f'{_path(version_id)}/branch'
        return await self._connection.post(Run, path, turn_body(prompt, fields), params={'wait': False})

    async def merge(self, version_id: str, other_id: str, *, choices: Mapping[str, MergeSide] | None = None) -> Version:
        """Merge the file changes of another version into a version, and return the merge.

        If the version contains the other one already, no version is created, and the version itself is returned.

        Args:
            version_id: The version whose messages remain. If it is the head, the head moves to the merge.
            other_id: The version to merge the files from.
            choices: The side to use for each conflicting file, by path.

        Raises:
            ApiError: Changes conflict (409); its `facts` list the `conflicts`.
        """
        body = {'other': other_id, 'choices': choices or {}}
        return await self._connection.post(Version, f'{_path(version_id)}/merge', body)


def _path(version_id: str) -> str:
    return f'/api/versions/{segment("version_id", version_id)}'
