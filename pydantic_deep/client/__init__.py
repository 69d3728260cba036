"""A client of the HTTP API of `pydantic_deep.server`: conversations, turns, approvals, versions, files and
memory.

The methods return the types of the rest of the package: `views`, the union of events of `streaming`, the decisions of
`approvals`. The client needs no extra, and does not import the server.

Absent on purpose: synchronous variants, as everywhere in this package. Call `anyio.run` at the edge of a script.
"""

from ._approvals import ApprovalsClient
from ._client import Client
from ._conversations import ConversationsClient
from ._errors import ApiError
from ._event_stream import EventStream
from ._files import FilesClient
from ._memory import MemoryClient
from ._turn_fields import TurnFields
from ._turns import TurnsClient
from ._versions import VersionsClient

__all__ = (
    'ApiError',
    'ApprovalsClient',
    'Client',
    'ConversationsClient',
    'EventStream',
    'FilesClient',
    'MemoryClient',
    'TurnFields',
    'TurnsClient',
    'VersionsClient',
)
