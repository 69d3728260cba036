"""Which version a dialogue belongs to that a client sends whole, each time.

What a client has seen of a conversation, and nothing else, names the version that it ended with: so files, todos and
tools of the turns before are there again, an edited dialogue is a branch, and the client needs to know none of that.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime

from pydantic import BaseModel

from pydantic_deep.repository import Repository, RowNotFoundError

from ._wire import Content, Dialogue, Said, merged, text_of

THREAD_FIELDS = ('owner', 'created_at')
"""What threads can be asked by."""


class Thread(BaseModel):
    """A dialogue as a client has seen it, and where it is kept."""

    id: str
    """The digest of the owner, the agent and the dialogue: see `thread_id`."""
    owner: str
    """Whose it is."""
    version_id: str
    """The version that the dialogue ends with."""
    created_at: datetime
    """When it was noted."""


def thread_id(owner: str, agent: str, known: Dialogue) -> str:
    """Return what names the dialogue before its new words: a SHA-256, of the owner and the agent too."""
    told = [owner, agent, known.system, [[each.role, *_told(each.content)] for each in known.said]]
    return hashlib.sha256(json.dumps(told).encode()).hexdigest()


def continued(known: Dialogue, answer: str) -> Dialogue:
    """Return the dialogue as the client has it after an answer."""
    said = [*known.said, Said(role='user', content=known.prompt), Said(role='assistant', content=_words(answer))]
    return Dialogue(system=known.system, said=merged(said))


async def find_version(threads: Repository[Thread], owner: str, agent: str, known: Dialogue) -> str | None:
    """Return the version that a dialogue goes on from; `None` if it is not known, or only begins."""
    if not known.said:
        return None
    try:
        return (await threads.get(thread_id(owner, agent, known))).version_id
    except RowNotFoundError:
        return None


async def note_version(
    threads: Repository[Thread], owner: str, agent: str, known: Dialogue, *, answer: str, version_id: str
) -> None:
    """Note which version a dialogue has come to by an answer."""
    id = thread_id(owner, agent, continued(known, answer))
    await threads.upsert(Thread(id=id, owner=owner, version_id=version_id, created_at=datetime.now(UTC)))


def _told(content: tuple[Content, ...]) -> tuple[str, list[str]]:
    """Return what tells words and files apart: without white space, which clients trim and put between blocks."""
    files = [each for each in content if not isinstance(each, str)]
    digests = [f'{each.media_type} {hashlib.sha256(each.data).hexdigest()}' for each in files]
    return ''.join(text_of(content).split()), digests


def _words(text: str) -> tuple[Content, ...]:
    return (text,) if text else ()
