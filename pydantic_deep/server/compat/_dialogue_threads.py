"""Lookup of the version that a dialogue continues.

Clients of other APIs send the whole dialogue and no id. The digest of the earlier messages identifies the version that
they ended with, so its files and todos are restored, and an edited dialogue becomes a branch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from pydantic_ai import BinaryContent

from pydantic_deep.repository import Repository, RowNotFoundError
from pydantic_deep.server._threads import Thread
from pydantic_deep.server.access._ownership import Access, ServedVersion
from pydantic_deep.store import VersionNotFoundError

from ._client_tools import ClientCall, calls_key
from ._dialogue import Content, Dialogue, DialogueMessage, LinkedFile, merge_messages, text_of, words


def thread_id(owner: str, agent: str, dialogue: Dialogue, *, session_id: str | None = None) -> str:
    """Return the id of a dialogue without its prompt: a SHA-256 that includes the owner and the agent.

    Args:
        owner: The owner of the key.
        agent: The name of the agent.
        dialogue: The dialogue.
        session_id: The client's own session id, since several users of a key may have sent the same messages.
    """
    messages = [
        [message.role, *_content_key(message.content), *calls_key(message.calls, message.results)]
        for message in dialogue.messages
    ]
    identity = [owner, agent, session_id, messages]
    return _digest(json.dumps(identity))


def extend_dialogue(dialogue: Dialogue, answer: str, calls: Sequence[ClientCall] = ()) -> Dialogue:
    """Return the dialogue with its prompt and the answer appended, as the client will send it next time."""
    messages = [
        *dialogue.messages,
        DialogueMessage(role='user', content=dialogue.prompt, results=tuple(dialogue.results)),
        DialogueMessage(role='assistant', content=words(answer), calls=tuple(calls)),
    ]
    return Dialogue(system=dialogue.system, messages=merge_messages(messages))


async def find_thread(
    threads: Repository[Thread], owner: str, agent: str, dialogue: Dialogue, *, session_id: str | None = None
) -> Thread | None:
    """Return the thread that a dialogue continues, or `None` if the dialogue is new or unknown."""
    if not dialogue.messages:
        return None
    try:
        return await threads.get(thread_id(owner, agent, dialogue, session_id=session_id))
    except RowNotFoundError:
        return None


@dataclass(frozen=True, kw_only=True)
class KnownDialogue:
    """A dialogue that the server knows."""

    thread: Thread
    """The stored thread."""
    version: ServedVersion
    """The version that the dialogue ends with."""


async def find_version(
    access: Access, agent_name: str, dialogue: Dialogue, *, session_id: str | None
) -> KnownDialogue | None:
    """Return the version that a dialogue of the caller continues; `None` if the dialogue is unknown, or was deleted."""
    thread = await find_thread(access.state.threads, access.owner, agent_name, dialogue, session_id=session_id)
    if thread is None:
        return None
    try:
        record = await access.state.store.version(thread.version_id)
    except VersionNotFoundError:  # the client sends the messages
        return None
    return KnownDialogue(thread=thread, version=await access.load_version(access.agent(agent_name), record))


async def store_thread(
    threads: Repository[Thread],
    owner: str,
    agent: str,
    dialogue: Dialogue,
    *,
    answer: str,
    calls: Sequence[ClientCall] = (),
    version_id: str,
    session_id: str | None = None,
) -> None:
    """Store the version that a dialogue ends with after an answer, and calls of the client's tools."""
    id = thread_id(owner, agent, extend_dialogue(dialogue, answer, calls), session_id=session_id)
    now = datetime.now(UTC)
    await threads.upsert(
        Thread(id=id, owner=owner, version_id=version_id, created_at=now, system=_digest(dialogue.system))
    )


def has_new_instructions(thread: Thread, dialogue: Dialogue) -> bool:
    """Return whether the system prompt of the client has changed, for example by a new date."""
    return thread.system != _digest(dialogue.system)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _content_key(content: tuple[Content, ...]) -> tuple[str, list[str]]:
    """Return the identity of text and files. White space is ignored: clients trim it, and add it between blocks."""
    digests = [_file_key(piece) for piece in content if not isinstance(piece, str)]
    return ''.join(text_of(content).split()), digests


def _file_key(file: BinaryContent | LinkedFile) -> str:
    """Return the identity of a file; of one by URL, that of the URL, since it was fetched only once."""
    if isinstance(file, LinkedFile):
        return f'url {_digest(file.url)}'
    return f'{file.media_type} {hashlib.sha256(file.data).hexdigest()}'
