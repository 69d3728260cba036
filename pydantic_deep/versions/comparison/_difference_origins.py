"""Finds the capabilities that cause a difference between a recorded and a replayed request.

Calls the hooks of the request one capability after another, and compares the changes of each with the difference. If no
change accounts for it, for example because a capability changed only the recorded request, all capabilities that could
have changed that part are named.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias, cast

from pydantic import JsonValue
from pydantic_ai import RunContext
from pydantic_ai.capabilities import AbstractCapability, CombinedCapability, WrapperCapability
from pydantic_ai.messages import (
    CapabilityInstructionSource,
    InstructionPart,
    ModelMessage,
    ModelResponse,
    ToolsetInstructionSource,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.toolsets import DynamicToolset

from pydantic_deep._requests.canonical_request import canonical_message
from pydantic_deep.versions.recording._capabilities import is_framework, overrides
from pydantic_deep.versions.recording._request_log import RequestLog

Capability: TypeAlias = AbstractCapability[Any]

Content: TypeAlias = Mapping[str, Sequence[str]]
"""The content of a request: the pieces of each part, keyed by the name of the part."""

_REQUEST = ('before_model_request', 'wrap_model_request')
_PREPARES = ('prepare_tools', 'get_wrapper_toolset')
_ABLE: Mapping[str, Sequence[Sequence[str]]] = {
    'instructions': (('get_instructions',), ('get_toolset',), _REQUEST),
    'tools': (('get_toolset',), _REQUEST),
    'settings': (('get_model_settings',), _REQUEST),
    'options': (('get_native_tools', 'prepare_output_tools'), _REQUEST),
    'messages': ((*_REQUEST, 'wrap_run', 'after_node_run', 'wrap_tool_execute', 'after_tool_execute'),),
    'count': (
        ('after_model_request', 'wrap_model_request', 'after_node_run', 'wrap_node_run'),
        ('after_output_validate', 'after_output_process', 'wrap_output_validate', 'wrap_output_process'),
        ('wrap_run', 'before_model_request', 'wrap_tool_execute'),
    ),
}
"""The methods with which a capability can change each part of a request, or the number of requests: the likeliest
first.
"""


class Origins(NamedTuple):
    """The capabilities that a difference comes from."""

    capabilities: Sequence[Capability] = ()
    is_certain: bool = False
    """Whether they caused it; otherwise each of them could have."""
    toolsets: Sequence[str] = ()
    """Toolsets of the agent itself that cause a difference of the tools."""

    @property
    def names(self) -> tuple[str, ...]:
        """The class names of the capabilities, without duplicates, and the toolsets."""
        return (*dict.fromkeys(type(capability).__name__ for capability in self.capabilities), *self.toolsets)

    def __str__(self) -> str:
        names = [
            f'{type(capability).__name__}{"" if capability.id is None else f" ({capability.id})"}'
            for capability in self.capabilities
        ]
        names += self.toolsets
        return f'{"Made" if self.is_certain else "Possibly made"} by {" or ".join(dict.fromkeys(names))}.'


class _Change(NamedTuple):
    capability: Capability
    before: Content
    after: Content


class ProbeEndedError(Exception):
    """Ends a probe after all hooks of the request were called."""


@dataclass(kw_only=True)
class Probe:
    """Calls the hooks of one request as pydantic-ai does, and records the changes of each capability."""

    leaves: list[Capability] = field(default_factory=list[Capability], init=False)
    """The capabilities of the run, unwrapped."""
    content: Content | None = field(default=None, init=False)
    """The content of the request after all hooks; `None` until all were called."""
    _changes: list[_Change] = field(default_factory=list[_Change], init=False)
    _owners: dict[str, str | None] = field(default_factory=dict[str, 'str | None'], init=False)
    """The id of the capability that owns a tool or a piece of the instructions, keyed by the piece; `None` for the
    agent itself.
    """

    _dynamic: Sequence[str] = field(default=(), init=False)
    """The names of the agent's toolsets that are created in each run."""
    _by_id: Mapping[str, Capability] = field(default_factory=dict[str, Capability], init=False)

    async def request(self, ctx: RunContext[object], context: ModelRequestContext, asker: Capability) -> None:
        """Call the hooks of all capabilities but one, up to the moment when the request is sent."""
        root = cast('CombinedCapability[Any]', ctx.root_capability)
        self._by_id = ctx.capabilities
        self._dynamic = _dynamic_toolsets(ctx)
        root.apply(lambda capability: self.leaves.append(_unwrapped(capability)))
        parameters = context.model_request_parameters
        tools = parameters.function_tools
        owner_by_toolset = {tool.toolset_id: tool.capability_id for tool in tools if tool.toolset_id is not None}
        self._owners = dict(zip(content_of(context)['tools'], (tool.capability_id for tool in tools), strict=True))
        for part in parameters.instruction_parts or ():
            if part.id is not None:
                source = part.id.source
                is_own = isinstance(source, CapabilityInstructionSource)
                of_toolset = owner_by_toolset.get(source.id) if isinstance(source, ToolsetInstructionSource) else None
                self._owners[part.content] = source.id if is_own else of_toolset
        active = [
            capability for capability in root.capabilities if capability is not asker and _is_active(capability, ctx)
        ]
        await self._wrap(ctx, active, 0, context)

    async def _wrap(
        self, ctx: RunContext[object], active: Sequence[Capability], index: int, context: ModelRequestContext
    ) -> ModelResponse:
        if index == len(active):
            enqueued: list[ModelMessage] = []
            for capability in active:
                before, pending = content_of(context), list(ctx.pending_messages or ())
                context = await capability.before_model_request(ctx, context)
                new = [one for one in ctx.pending_messages or () if one not in pending]
                added = [message for one in new for message in one.messages]
                self._note(capability, before, content_of(context, added))
                enqueued += added
            self.content = content_of(context, enqueued)
            raise ProbeEndedError
        capability, before = active[index], content_of(context)

        async def handler(request_context: ModelRequestContext) -> ModelResponse:
            self._note(capability, before, content_of(request_context))
            return await self._wrap(ctx, active, index + 1, request_context)

        return await capability.wrap_model_request(ctx, request_context=context, handler=handler)

    def _note(self, capability: Capability, before: Content, after: Content) -> None:
        if before != after:
            self._changes.append(_Change(_unwrapped(capability), before, after))

    def origins(self, part: str, recorded: Content, replayed: Content) -> Origins:
        """Return the origins of a difference in a part."""
        before, after = recorded[part], replayed[part]
        if part == 'instructions':  # recorded as one text
            before = _aligned(before[0], after)
        new, gone = Counter(after) - Counter(before), Counter(before) - Counter(after)
        made = [change.capability for change in self._changes if _accounts_for(change, part, new, gone)]
        if not made and (owners := self._owners_of(part, new)) is not None:
            made = owners
            if not made:
                return Origins()
        if part == 'tools' and self._dynamic and not made and {self._owners.get(piece) for piece in new} <= {None}:
            return Origins(toolsets=self._dynamic)
        if part == 'tools':  # a tool's definition may be its own, or changed by a hook
            preparing = [capability for capability in self._others if overrides(capability, *_PREPARES)]
            if preparing:
                return Origins(
                    _unique([*(capability for capability in made if not is_framework(capability)), *preparing])
                )
        if made:
            return Origins(_unique(made), is_certain=True)
        return self.able(part, () if new and part == 'instructions' else tuple(gone))

    def _owners_of(self, part: str, new: Counter[str]) -> list[Capability] | None:
        """Return the capabilities that own pieces; empty if the agent does, `None` if the owners are unknown."""
        owners = [self._owners[piece] for piece in new if piece in self._owners]
        if not owners or len(owners) < len(new) or (part == 'tools' and None in owners):
            return None
        return [_unwrapped(self._by_id[owner]) for owner in owners if owner is not None and owner in self._by_id]

    @property
    def _others(self) -> Sequence[Capability]:
        return [capability for capability in self.leaves if not is_framework(capability)]

    def able(self, part: str, lost: Sequence[str] = ()) -> Origins:
        """Return the capabilities that could have changed a part, except those of this framework.

        Args:
            part: The name of the part.
            lost: The pieces missing in the replay. A capability whose id they contain is the likeliest.
        """
        for names in _ABLE[part]:
            able = [capability for capability in self._others if overrides(capability, *names)]
            if 'get_instructions' in names:
                able = [
                    capability
                    for capability in able
                    if _has_dynamic_instructions(capability) and (lost or capability.id is None)
                ]
            able = [
                capability
                for capability in able
                if capability.id is not None and any(capability.id in text for text in lost)
            ] or able
            if able:
                return Origins(_unique(able))
        return Origins()


def content_of(context: ModelRequestContext, more: Sequence[ModelMessage] = ()) -> Content:
    """Return the content of a request, in pieces."""
    messages = [cast('JsonValue', canonical_message(message)) for message in (*context.messages, *more)]
    parts = context.model_request_parameters.instruction_parts or ()
    return {
        **recorded_content(RequestLog.parameters_of(context), messages),
        'instructions': [part.content for part in parts],
    }


def recorded_content(head: Mapping[str, JsonValue], messages: Sequence[JsonValue]) -> Content:
    """Return the content of a recorded request, in pieces.

    Args:
        head: The result of `RequestLog.parameters_of`.
        messages: The messages, in canonical form.
    """
    options = dict(cast('dict[str, JsonValue]', head['options']))
    settings = cast('dict[str, JsonValue]', options.pop('settings', {}))
    parts = [part for message in messages for part in cast('dict[str, list[JsonValue]]', message)['parts']]
    return {
        'instructions': [cast('str | None', head['instructions']) or ''],
        'tools': _pieces(cast('list[JsonValue]', head['tools'])),
        'settings': _pieces([list(item) for item in settings.items()]),
        'options': _pieces([list(item) for item in options.items()]),
        'messages': _pieces(parts),
    }


def _pieces(values: Sequence[JsonValue]) -> list[str]:
    return [json.dumps(value, sort_keys=True) for value in values]


def _aligned(text: str, pieces: Sequence[str]) -> list[str]:
    """Return the pieces that a text contains, and the rest of the text."""
    present = sorted((piece for piece in pieces if piece in text), key=text.index)
    for piece in present:
        text = text.replace(piece, '', 1)
    return [*present, *([text.strip()] if text.strip() else [])]


def _accounts_for(change: _Change, part: str, new: Counter[str], gone: Counter[str]) -> bool:
    before, after = Counter(change.before[part]), Counter(change.after[part])
    if not new and not gone:  # only the order differs
        return list(change.before[part]) != list(change.after[part])
    return bool((after - before) & new or (before - after) & gone)


def _unwrapped(capability: Capability) -> Capability:
    while isinstance(capability, WrapperCapability):
        capability = capability.wrapped
    return capability


def _unique(capabilities: Sequence[Capability]) -> Sequence[Capability]:
    return list({id(capability): capability for capability in capabilities}.values())


def _is_active(capability: Capability, ctx: RunContext[object]) -> bool:
    return capability.defer_loading is not True or capability.id in ctx.loaded_capability_ids


def _dynamic_toolsets(ctx: RunContext[object]) -> list[str]:
    """Return the names of the agent's toolsets that a function creates, named after the function."""
    names: list[str] = []
    for toolset in () if ctx.agent is None else ctx.agent.toolsets:
        toolset.apply(
            lambda leaf: names.append(f'the toolset of {_name_of(leaf)}') if isinstance(leaf, DynamicToolset) else None
        )
    return names


def _name_of(toolset: DynamicToolset[Any]) -> str:
    return toolset.id or getattr(toolset.toolset_func, '__name__', 'the agent')


def _has_dynamic_instructions(capability: Capability) -> bool:
    value: object = capability.get_instructions()
    items = cast('Sequence[object]', value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    return not all(isinstance(item, (str, InstructionPart, type(None))) for item in items)
