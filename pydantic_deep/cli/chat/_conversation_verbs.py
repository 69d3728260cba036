"""Verbs about the conversation itself: what it has, costs and contains, and its model."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic_ai import UserError
from rich.text import Text

from pydantic_deep.cli.history._context_report import describe_cost, load_context_usage, render_context
from pydantic_deep.cli.render._event_lines import (
    INCOMPLETE_FILES,
    render_file,
    render_skills,
    render_todos,
    render_total,
)
from pydantic_deep.cli.render._ids import short_id
from pydantic_deep.cli.render._mcp_servers import render_mcp_servers
from pydantic_deep.cli.render._terminal_text import escape_invisible
from pydantic_deep.cli.render._wrapping import print_lines, print_truncated
from pydantic_deep.cli.turn._agent_start import mcp_servers_of
from pydantic_deep.cli.turn._compaction import compact
from pydantic_deep.cli.turn._models import open_model
from pydantic_deep.plan_mode import has_plan_mode
from pydantic_deep.streaming import UsageEvent

from ._session import ChatSession
from ._verbs import ChatEndedError, Verb, WrongVerbError


async def _todos(chat: ChatSession, arguments: Sequence[str]) -> None:
    chat.print(render_todos(chat.runtime.deps.todos) or Text('There is no plan.'))


async def _files(chat: ChatSession, arguments: Sequence[str]) -> None:
    changes = await chat.runtime.backend.all_changes()
    chat.print(Text('\n').join(map(render_file, changes)) or Text('No file has changed.'))
    if not chat.runtime.backend.has_all_changes:
        chat.print(Text(INCOMPLETE_FILES, 'yellow'))


async def _skills(chat: ChatSession, arguments: Sequence[str]) -> None:
    try:
        catalog = await chat.runtime.skills.catalog()
    except UserError as error:
        chat.warn(str(error))
    else:
        for line in render_skills(catalog):
            print_truncated(chat.console, line)


async def _context(chat: ChatSession, arguments: Sequence[str]) -> None:
    usage = await load_context_usage(chat.tip(), context_window=chat.context_window)
    width = chat.console.width if chat.console.is_terminal else None
    print_lines(chat.console, render_context(usage, width=width))


async def _cost(chat: ChatSession, arguments: Sequence[str]) -> None:
    tip = chat.tip()
    used = tip.usage
    total = UsageEvent(
        requests=used.requests,
        tool_calls=used.tool_calls,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )
    usage = await load_context_usage(tip)
    chat.print(render_total(total))
    chat.print(Text(describe_cost(usage)))


async def _compact(chat: ChatSession, arguments: Sequence[str]) -> None:
    tip = chat.tip()
    if tip.state == 'awaiting_approval' or tip.kind == 'step':  # its calls have no results
        raise WrongVerbError('The last turn has not ended: /resume finishes it, another prompt goes on without it.')
    messages = await tip.messages()
    with chat.console.status('Summarizing the conversation …'):
        compaction = await chat.interruptible(compact(chat.runtime.agent, chat.runtime.deps, messages))
    if compaction is None:
        raise WrongVerbError('The conversation is too short for a summary, or its agent does not summarize.')
    version = await chat.conversation.replace_history(compaction.messages)
    chat.print(
        Text(
            f'Summarized {compaction.replaced} messages: about {compaction.tokens_before:,} → '
            f'{compaction.tokens_after:,} tokens. version {short_id(version.id)}; /undo restores them.'
        )
    )


async def _model(chat: ChatSession, arguments: Sequence[str]) -> None:
    if arguments:
        [name] = arguments
        await chat.conversation.use_model(name, open_model(name, chat.environment.models))
    chat.print(Text(escape_invisible(f'The model is {chat.runtime.model}.')))


async def _mcp(chat: ChatSession, arguments: Sequence[str]) -> None:
    servers = mcp_servers_of(chat.runtime)
    chat.print(*render_mcp_servers([status for each in servers for status in await each.status()]))


async def _plan(chat: ChatSession, arguments: Sequence[str]) -> None:
    if not chat.conversation.settings.plan_mode and not has_plan_mode(chat.runtime.agent):
        raise WrongVerbError('This chat has no plan mode. Start it with --plan.')
    [prompt] = arguments
    await chat.prompt(prompt, plan=True)


async def _new(chat: ChatSession, arguments: Sequence[str]) -> None:
    chat.reset()
    chat.print(Text('Started a new conversation. The files are unchanged.'))


async def _help(chat: ChatSession, arguments: Sequence[str]) -> None:
    lines = chat.verbs.help(chat.console.width) if chat.console.is_terminal else chat.verbs.help()
    chat.print(Text('\n'.join(lines)))


async def _quit(chat: ChatSession, arguments: Sequence[str]) -> None:
    raise ChatEndedError


CONVERSATION_VERBS = (
    Verb(name='todos', summary='show the plan', run=_todos),
    Verb(name='files', summary='show the files that changed since the chat started', run=_files),
    Verb(name='skills', summary='list the skills', run=_skills),
    Verb(name='context', summary='show the tokens of the conversation, by kind', run=_context),
    Verb(name='cost', summary='show what the conversation has used and cost', run=_cost),
    Verb(name='compact', summary='replace the beginning of the conversation by a summary', run=_compact),
    Verb(
        name='model',
        arguments='[NAME]',
        summary='show the model, or use another one',
        run=_model,
        completion='model',
    ),
    Verb(name='plan', arguments='PROMPT…', summary='change nothing until you accept a plan', run=_plan),
    Verb(name='mcp', summary='show the MCP servers and their tools', run=_mcp),
)
"""What the conversation has, and its model."""

CHAT_VERBS = (
    Verb(name='new', summary='start a conversation without the plan and permissions', run=_new),
    Verb(name='help', summary='list these commands', run=_help),
    Verb(name='quit', summary='end the chat, as Ctrl-D does', run=_quit),
    Verb(name='exit', summary='end the chat', run=_quit, is_listed=False),
)
"""The chat itself."""
