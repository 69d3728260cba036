"""The stored options of a run, with which recovery starts it again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any, cast

from pydantic import JsonValue, TypeAdapter
from pydantic_ai import ToolDefinition
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep.store import RunRecord

from .options._external_tools import dump_external_tools, load_external_tools


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The content of `RunRecord.options`."""

    model: str | None = None
    """The name of the model of this turn; `None` for that of the version, or if the model was passed as an object."""
    model_settings: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """The model settings of this turn that JSON can represent."""
    usage_limits: UsageLimits | None = None
    """The usage limits of the conversation."""
    branch: str | None = None
    """The name of the branch that begins with the turn."""
    external_tools: Sequence[ToolDefinition] | None = None
    """The tools of the caller; `None` if the caller has not given any."""
    tool_choice: Sequence[str] | None = None
    """The external tools of which each response must call one; `None` if the model decides."""
    output_schema: Mapping[str, JsonValue] | None = None
    """The JSON schema of the output; `None` for the output type of the agent."""
    head: str | None = None
    """The head of the conversation that the end of the run moves; `None` if it moves none."""
    resumes: str | None = None
    """The version whose pending approvals the run resumes; such a run begins without a prompt.

    Its first request may contain user content nevertheless: a tool can return some in addition to its result.
    """
    after: Sequence[str] = ()
    """The suspended runs of the conversation when this turn began. They do not resume unless they are named."""
    session_id: str | None = None
    """The caller's own session id."""
    span_id: str | None = None
    """The span of the turn in the trace of the run, with which the spans of later attempts and resumptions link."""
    protected: Mapping[str, str] | None = None
    """The states of the directory's protected files when the turn began, keyed by path."""
    protected_in_view: Mapping[str, str] | None = None
    """The states of the protected files of a view when the turn began, keyed by path."""

    @property
    def settings(self) -> ModelSettings:
        """The model settings as `ModelSettings`."""
        return cast('ModelSettings', self.model_settings)

    def dump(self) -> str:
        """Return the options as JSON, without those that are `None`."""
        document = {option.name: getattr(self, option.name) for option in fields(self)}
        if self.usage_limits is not None:
            document['usage_limits'] = _limits().dump_python(self.usage_limits, mode='json', exclude_defaults=True)
        if self.external_tools is not None:
            document['external_tools'] = dump_external_tools(self.external_tools)
        return json.dumps({name: value for name, value in document.items() if value is not None})

    @staticmethod
    def load(text: str) -> RunOptions:
        """Return the options from their JSON, without those that this release does not know."""
        document: dict[str, Any] = json.loads(text)
        limits = document.pop('usage_limits', None)
        tools = document.pop('external_tools', None)
        known = {option.name for option in fields(RunOptions)}
        return RunOptions(
            usage_limits=None if limits is None else _limits().validate_python(limits),
            external_tools=None if tools is None else load_external_tools(tools),
            **{name: value for name, value in document.items() if name in known},
        )


def load_options(run: RunRecord) -> RunOptions:
    """Return the options of a run."""
    return RunOptions.load(run.options)


def external_tools_of(run: RunRecord) -> Sequence[ToolDefinition]:
    """Return the external tools of a run; see `TurnOptions.external_tools`."""
    return load_options(run).external_tools or ()


def json_settings(settings: ModelSettings | None) -> dict[str, JsonValue]:
    """Return the settings that JSON can represent."""
    dumped: dict[str, JsonValue] = {}
    for name, value in (settings or {}).items():
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            continue
        dumped[name] = cast('JsonValue', value)
    return dumped


@cache
def _limits() -> TypeAdapter[UsageLimits]:
    return TypeAdapter(UsageLimits)
