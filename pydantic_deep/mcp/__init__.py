"""The tools and resources of MCP servers, for any pydantic-ai agent: `McpServers.from_file('.mcp.json')`.

Connections need the extra `mcp`. pydantic-ai's `MCPToolset` is the client. This package adds approvals and effects from
the annotations of tools, deferred definitions, questions to the user that pause the run, and failures that end neither
the run nor the tools of other servers.
"""

from ._capability import McpServers
from ._config import McpServer, parse_mcp_file, read_mcp_file
from ._errors import McpConfigError
from ._names import tool_prefix
from ._status import McpServerStatus, McpToolStatus

__all__ = (
    'McpConfigError',
    'McpServer',
    'McpServerStatus',
    'McpServers',
    'McpToolStatus',
    'parse_mcp_file',
    'read_mcp_file',
    'tool_prefix',
)
"""The names of this package."""
