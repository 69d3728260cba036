"""The files of an editor, as far as it lets agents read and write them."""

from __future__ import annotations

import errno
from dataclasses import dataclass

from acp.schema import ClientCapabilities

from ._client import FAILURES, Client, describe_refusal


@dataclass(frozen=True, kw_only=True)
class EditorFiles:
    """The files that an editor shows, for one session."""

    client: Client
    """The editor."""
    session_id: str
    """The session."""
    can_read: bool
    """Whether the editor returns texts."""
    can_write: bool
    """Whether the editor writes texts."""

    async def read(self, path: str) -> str | None:
        """Return the text of a file in the editor; `None` if it does not have the file, which is on disk then."""
        if not self.can_read:
            return None
        try:
            return (await self.client.read_text_file(self.session_id, path)).content
        except FAILURES:
            return None

    async def write(self, path: str, text: str) -> None:
        """Write a text in the editor.

        Raises:
            OSError: The editor refused. Nothing is written.
        """
        if self.can_write:
            try:
                await self.client.write_text_file(self.session_id, path, text)
            except FAILURES as error:
                reason = describe_refusal(error)
                raise OSError(errno.EIO, f'The editor refused to write the file: {reason}. Ask the user') from error


def open_editor_files(client: Client, session_id: str, capabilities: ClientCapabilities | None) -> EditorFiles | None:
    """Return the files of an editor; `None` if it has not declared that it reads or writes any."""
    files = None if capabilities is None else capabilities.fs
    if files is None or not (files.read_text_file or files.write_text_file):
        return None
    return EditorFiles(
        client=client,
        session_id=session_id,
        can_read=bool(files.read_text_file),
        can_write=bool(files.write_text_file),
    )
