"""The Agent Client Protocol (ACP), by which editors run the agent: `pydantic-deep acp`. It needs the extra `acp`.

The adapter has no loop and no state of its own beside the open sessions. A session is a chat without a terminal: the
same conversation, turns and verbs.

| ACP | here |
|---|---|
| `session/new`, `load`, `resume`, `fork`, `list` | a conversation in the working directory; the versions of a session have its id in their metadata |
| `session/prompt`: text, links, embedded texts, images | the prompt of a turn, or a verb of the chat if it starts with `/` |
| `session/cancel` | the cancellation token of the turn |
| `agent_message_chunk`, `agent_thought_chunk` | `TextEvent`, `ThinkingEvent` of the agent; not those of subagents |
| `tool_call`, `tool_call_update` | `ToolCallEvent`, `ToolResultEvent`, those of subagents included |
| `plan` | `TodosEvent` |
| `session/request_permission` | the pending approvals and questions of a turn |
| `fs/read_text_file`, `fs/write_text_file` | texts of the backend, if the editor declares them |
| `terminal/*` | commands of the agent, with `--terminal` |
| `available_commands_update` | the verbs and skills |
| modes `ask`, `plan`, `auto` | prompts for approvals, plan mode, approvals that are given without a prompt |
| stop reason | the `EndEvent`; a failed turn is a JSON-RPC error with the message of its `ErrorEvent` |

`_connection.py` has the streams, `_agent.py` the methods of the protocol, `_session.py` one session,
`_stored_sessions.py` those of the store, `_client.py` the methods of the editor, `_editor_files.py` and `_terminal.py`
its files and terminals. The other modules are pure: `_prompts.py`, `_updates.py`, `_permissions.py`.
"""

import importlib

try:
    importlib.import_module('acp')
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "The command `acp` needs 'acp', which is not installed. Install the extra: "
        "`pip install 'versioned-deep-agents[acp]'`.",
        name=_error.name,
    ) from _error
