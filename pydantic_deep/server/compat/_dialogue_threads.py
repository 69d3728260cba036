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

from ._dialogue import Content, Dialogue, Said, merged, text_of

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
    system: str = ''
    """The SHA-256 of what the client has wanted the agent to be told; it may want something else each time."""


def thread_id(owner: str, agent: str, known: Dialogue, *, session_id: str | None = None) -> str:
    """Return what names the dialogue before its new words: a SHA-256, of the owner and the agent too.

    Args:
        owner: Whose it is.
        agent: Who answers.
        known: The dialogue.
        session_id: The client's own id: behind one key there may be many people who have said the same.
    """
    told = [owner, agent, session_id, [[each.role, *_told(each.content)] for each in known.said]]
    return _digest(json.dumps(told))


def continued(known: Dialogue, answer: str) -> Dialogue:
    """Return the dialogue as the client has it after an answer."""
    said = [*known.said, Said(role='user', content=known.prompt), Said(role='assistant', content=_words(answer))]
    return Dialogue(system=known.system, said=merged(said))


async def find_thread(
    threads: Repository[Thread], owner: str, agent: str, known: Dialogue, *, session_id: str | None = None
) -> Thread | None:
    """Return where a dialogue goes on; `None` if it is not known, or only begins."""
    if not known.said:
        return None
    try:
        return await threads.get(thread_id(owner, agent, known, session_id=session_id))
    except RowNotFoundError:
        return None


async def note_thread(
    threads: Repository[Thread],
    owner: str,
    agent: str,
    known: Dialogue,
    *,
    answer: str,
    version_id: str,
    session_id: str | None = None,
) -> None:
    """Note which version a dialogue has come to by an answer."""
    id = thread_id(owner, agent, continued(known, answer), session_id=session_id)
    now = datetime.now(UTC)
    await threads.upsert(
        Thread(id=id, owner=owner, version_id=version_id, created_at=now, system=_digest(known.system))
    )


def has_other_system(thread: Thread, known: Dialogue) -> bool:
    """Return whether the client wants the agent to be told something else than before, such as another date."""
    return thread.system != _digest(known.system)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _told(content: tuple[Content, ...]) -> tuple[str, list[str]]:
    """Return what tells words and files apart: without white space, which clients trim and put between blocks."""
    files = [each for each in content if not isinstance(each, str)]
    digests = [f'{each.media_type} {hashlib.sha256(each.data).hexdigest()}' for each in files]
    return ''.join(text_of(content).split()), digests


def _words(text: str) -> tuple[Content, ...]:
    return (text,) if text else ()
