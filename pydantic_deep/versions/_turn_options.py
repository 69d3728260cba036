"""`TurnOptions`: the input and options of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pydantic import JsonValue
from pydantic_ai import CancellationToken, ToolDefinition
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import UsageLimits

from pydantic_deep._checks import LIMIT_USAGE, check_model, check_names, check_object, check_prompt
from pydantic_deep.approvals import Decision

from ._run_options import RunOptions, json_settings
from ._settings import check_settings
from .errors import ValidationError
from .options._external_tools import check_external_tools
from .recording._prompts import Prompt, decode_prompt, encode_prompt


@dataclass(frozen=True, kw_only=True)
class TurnOptions:
    """The input of a turn, a prompt or answers to pending approvals, and the options of its run.

    `AgentVersion.run` and `AgentVersion.stream` take this object. `advance` and `resume` take the most common options as
    keywords.
    """

    prompt: Prompt | None = None
    """The user prompt; `None` for a turn that resumes with answers to pending approvals."""
    answers: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    """Answers, keyed by the `id` of each of `AgentVersion.pending`. Without any, the run uses the answers in the inbox.
    """
    by: str | None = None
    """The person who answers."""
    reason: str | None = None
    """The reason for the answers."""
    deps: object = None
    """The deps of the run, instead of new ones. Todos, uploads and files come from the version."""
    model: Model | str | None = None
    """The model of this turn, instead of that of the version or agent."""
    model_settings: ModelSettings = field(default_factory=ModelSettings)
    """Model settings of this turn, which override those of the version."""
    branch: str | None = None
    """The name of a branch that begins with this turn."""
    usage_limits: UsageLimits | None = None
    """The usage limits of the conversation, over all of its turns."""
    cancellation_token: CancellationToken | None = None
    """Stops the run when it is cancelled."""
    external_tools: Sequence[ToolDefinition] | None = None
    """Tools of the caller, for this turn. A call of one pauses the turn: answer it by `Respond` with the result, or by
    `Deny`. `None` for none; in a turn that resumes, for those of the turn that paused.
    """
    tool_choice: Sequence[str] | None = None
    """Names of external tools of which each response must call one; `None` if the model decides."""
    output_schema: Mapping[str, JsonValue] | None = None
    """A JSON schema that replaces the output type of the agent for this turn. The output is then JSON that is valid by
    it. `None` for the type of the agent; in a turn that resumes, for the schema of the turn that paused.
    """
    run_id: str | None = None
    """The id of the run, an unused UUIDv7 from `new_id` of the store; `None` to create one."""
    moves_head: bool = False
    """Whether to move the head of the conversation to the new version, if it is at the version that the turn starts
    from.
    """
    exclusive: bool = False
    """Whether to refuse the turn with `VersionBusyError` while another run from its version is active, in any process.
    Of turns that begin at the same time, one is accepted.
    """

    def check(self) -> None:
        """Check the values that do not depend on the version.

        Raises:
            ValidationError: One of them is invalid.
        """
        check_names(run_id=self.run_id, by=self.by, branch=self.branch)
        check_model('model', self.model)
        check_settings(self.model_settings)
        if self.usage_limits is not None:
            check_object('usage_limits', self.usage_limits, UsageLimits, LIMIT_USAGE)
        check_external_tools(self.external_tools or (), self.tool_choice or ())
        if self.output_schema is not None:
            from .options._output_schema import output_type_of  # it requires an extra

            output_type_of(self.output_schema)
        if self.prompt is not None:
            check_prompt('prompt', self.prompt)
            if self.answers:
                raise ValidationError(
                    'answers', 'the turn has a prompt. Answer the pending approvals in a turn without one.'
                )

    def dump(self) -> tuple[bytes | None, str]:
        """Return the prompt as JSON, if any, and the other options as a JSON object, for a turn in another process.

        Answers, `by` and `reason` are not among them: store them first, with `AgentVersion.answer`. `moves_head`,
        `exclusive`, `run_id` and the cancellation token belong to the process that submits or runs the turn.

        Raises:
            ValidationError: An option is invalid, or another process cannot have it: `deps`, a model that is an object,
                or a setting that is not JSON.
        """
        self.check()
        if self.deps is not None:
            message = 'a turn that another process runs creates its own. Pass `make_deps` to the workers.'
            raise ValidationError('deps', message)
        if self.model is not None and not isinstance(self.model, str):
            message = f'another process cannot have a {type(self.model).__name__}. Pass the name of the model.'
            raise ValidationError('model', message)
        settings = json_settings(self.model_settings)
        if len(settings) < len(self.model_settings):
            name = min(self.model_settings.keys() - settings.keys())
            raise ValidationError(name, 'the setting is not JSON, so that another process cannot have it.')
        options = RunOptions(
            model=self.model,
            model_settings=settings,
            usage_limits=self.usage_limits,
            branch=self.branch,
            external_tools=self.external_tools,
            tool_choice=self.tool_choice,
            output_schema=self.output_schema,
        )
        return None if self.prompt is None else encode_prompt(self.prompt), options.dump()

    @staticmethod
    def load(
        prompt: bytes | None,
        options: str,
        *,
        run_id: str,
        moves_head: bool,
        cancellation_token: CancellationToken | None = None,
    ) -> TurnOptions:
        """Return the options that `dump` wrote."""
        loaded = RunOptions.load(options)
        return TurnOptions(
            prompt=None if prompt is None else decode_prompt(prompt),
            model=loaded.model,
            model_settings=loaded.settings,
            branch=loaded.branch,
            usage_limits=loaded.usage_limits,
            external_tools=loaded.external_tools,
            tool_choice=loaded.tool_choice,
            output_schema=loaded.output_schema,
            run_id=run_id,
            moves_head=moves_head,
            cancellation_token=cancellation_token,
        )
