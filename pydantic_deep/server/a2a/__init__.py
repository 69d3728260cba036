"""Agents over A2A (Agent2Agent protocol), for other agents. It needs the extra `a2a`.

| A2A | here |
|---|---|
| a task | a run, and the runs that resume its turn after decisions. Its id is that of the first one |
| a context | a conversation |
| a message without a task | a turn, started by `start_run` as for every other API |
| `input-required` | pending approvals, questions and external calls, or a suspended run |
| a message to such a task | the decisions, each in a data part, checked as those of every other API |
| an artifact | the output of the run |
| the history | the prompt, and the texts of the agent |
| cancel | `routes._turns.cancel_own_run` |
| the card of an agent | its name, its description and its skills |

The types and the protocol 0.3 are those of `a2a-sdk`. Its dispatcher of JSON-RPC is not used, since it writes the text of
errors into spans, nor are its task store and its event queues: the store and the run pool have the tasks.

Not offered: push notifications (webhooks exist) and the bindings gRPC and HTTP+JSON.
"""

try:
    # First: `a2a.compat` imports in a circle unless this module has been imported.
    import a2a.server.routes as _routes  # pyright: ignore[reportUnusedImport] # noqa: F401
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        f"A2A needs {_error.name!r}, which is not installed. Install the extra: `pip install 'versioned-deep-agents[a2a]'`.",
        name=_error.name,
    ) from _error
