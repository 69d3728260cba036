"""Token counts of requests, without a run.

A dialogue that the server knows counts as the context of its version: the usage that the provider reported for the last
response, with the agent's instructions and the results of its tools, plus an estimate of what the request adds. The
whole of an unknown dialogue is an estimate, and the agent's own instructions and tools are not part of it.
"""

from __future__ import annotations

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelRequestPart, ToolReturnPart, UserPromptPart
from pydantic_ai.models import ModelRequestParameters

from pydantic_deep.server.access._ownership import Access, ServedVersion
from pydantic_deep.tokens import MessageTokens, count_head, count_message

from ._dialogue import Dialogue, prompt_of, to_model_messages
from ._dialogue_threads import find_version
from ._linked_files import fetch_content, fetch_history


async def count_tokens(access: Access, agent_name: str, dialogue: Dialogue, *, session_id: str | None) -> int:
    """Return the number of input tokens of a request that contains the whole dialogue.

    Raises:
        ServerError: The caller may not use the agent.
    """
    access.model(agent_name)
    known = await find_version(access, agent_name, dialogue, session_id=session_id)
    return await count_tokens_after(access, None if known is None else known.version, dialogue)


async def count_tokens_after(access: Access, version: ServedVersion | None, dialogue: Dialogue) -> int:
    """Return the number of input tokens of a request that continues a version.

    Args:
        access: The access of the caller.
        version: The version; `None` if the earlier messages of the dialogue are the history.
        dialogue: The request.

    Raises:
        ServerError: A file by URL cannot be fetched.
    """
    settings = access.state.settings
    if version is None:
        messages: list[ModelMessage] = to_model_messages(await fetch_history(settings, dialogue))
        added: list[ModelRequestPart] = []
    else:
        messages = await version.messages()
        added = [ToolReturnPart(each.name, each.content, each.id or '') for each in dialogue.results]
    if dialogue.prompt:
        added.append(UserPromptPart(prompt_of(await fetch_content(settings, dialogue.prompt))))
    tools = ModelRequestParameters(function_tools=[*(dialogue.tools.tools or ())])
    return MessageTokens().context(messages) + count_message(ModelRequest(parts=added)) + count_head(tools)
