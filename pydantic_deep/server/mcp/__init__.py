"""Agents over MCP (Model Context Protocol), for editors and other agents. It needs the extra `mcp`.

| MCP | here |
|---|---|
| a call of the tool `run` | a turn, started by `start_run` as for every other API |
| a progress notification | an event of the log of the run |
| a task | a turn: a run, and the runs that resume it |
| the other tools | the routes of `/api` with the same name, with their checks and scopes |
| an elicitation | an approval, answered through the same route. Only people answer, unless `mcp_answers` is set |
| a resource | a version, or a file of it |
| a prompt | a skill of an agent |

A run belongs to the server and not to the request: if the request is cancelled or the client disconnects, the run
continues, and `get_run` returns its result. `cancel_run` ends it.

Over HTTP each request is authenticated alone, so any process of a server can answer it, and a restart loses nothing.
The exception are forms of older protocols, which need a session in one process (`_sessions`).

Defined elsewhere: MCP servers whose tools our agents use (`pydantic_deep.mcp`).
"""

try:
    import mcp as _mcp  # pyright: ignore[reportUnusedImport] # noqa: F401
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"MCP needs {_error.name!r}, which is not installed. Install the extra: `pip install 'versioned-deep-agents[mcp,server]'`.",
        name=_error.name,
    ) from _error
