"""Runs of cases: each in new files in memory, with all skills of the directory in the catalogue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, cast

import anyio
from pydantic_ai import Agent, CancellationToken, RunCancelled
from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import Model
from pydantic_ai.run import AgentRunResult

from pydantic_deep._messages.grants import LOAD_TOOL
from pydantic_deep.agent import create_deep_agent
from pydantic_deep.cli.turn._failures import describe_failure
from pydantic_deep.cli.turn._runtime import INSTRUCTIONS
from pydantic_deep.deps import DeepAgentDeps
from pydantic_deep.skills import Skill, Skills
from pydantic_deep_backends import StateBackend

from ._cases import Case
from ._checks import Check
from ._scripted import ScriptedSkillModel, choose_skill

MAX_REQUESTS: Final = 3
"""Maximum number of requests of a run that only measures whether a skill is loaded.

The catalogue asks to load a skill first. A model may look at the files before; one that has not loaded a skill by then
has begun without it, and a small one may call tools for ever.
"""


@dataclass(frozen=True, kw_only=True)
class CheckResult:
    """The result of one check."""

    check: Check
    passed: bool


@dataclass(frozen=True, kw_only=True)
class CaseRun:
    """The result of one run of a case."""

    case: Case
    loaded: tuple[str, ...] = ()
    """The names of the loaded skills, in order."""
    checks: tuple[CheckResult, ...] = ()
    """The results of the checks; empty if there are none, or the scripted model has no script for them. In a run that
    failed, every check failed.
    """
    error: str | None = None
    """Why the run failed; `None` if it did not."""

    @property
    def loads_rightly(self) -> bool:
        """Whether the skill was loaded if it should be, and was not if it should not be.

        A run that failed without loading it is never right, as it might have loaded it later.
        """
        is_loaded = self.case.skill in self.loaded
        return is_loaded is self.case.should_load and (is_loaded or self.error is None)

    @property
    def passed(self) -> bool:
        """Whether the run was complete, the skill was loaded rightly and every check passed."""
        return self.error is None and self.loads_rightly and all(result.passed for result in self.checks)


@dataclass(kw_only=True)
class CaseRunner:
    """Runs cases with one model."""

    skills: Skills
    """The capability with all skills of the directory."""
    visible: Sequence[Skill]
    """Its skills in the catalogue."""
    model: Model | None
    """The model; `None` for the scripted one."""
    timeout_seconds: float
    """Maximum duration of one run."""
    stop: CancellationToken = field(default_factory=CancellationToken)
    """Ends the run."""

    @cached_property
    def _agent(self) -> Agent[DeepAgentDeps, str]:
        return create_deep_agent(instructions=INSTRUCTIONS, capabilities=[self.skills])

    async def run(self, case: Case) -> CaseRun:
        """Run a case once.

        Raises:
            RunCancelled: `stop` was cancelled.
        """
        loaded: dict[str, None] = {}
        backend = StateBackend(case.files)
        try:
            with anyio.fail_after(self.timeout_seconds):
                answer = await self._play(case, backend, loaded)
        except TimeoutError:
            error = f'No result after {self.timeout_seconds:g} seconds. `--timeout` changes the limit.'
        except RunCancelled:
            raise
        except Exception as raised:  # noqa: BLE001 - one failed run must not hide the results of the others
            error = describe_failure(raised).message
        else:
            checks = () if answer is None else [result async for result in _results(case.checks, backend, answer)]
            return CaseRun(case=case, loaded=tuple(loaded), checks=tuple(checks))
        failed = [CheckResult(check=check, passed=False) for check in case.checks if self._has_checks(case)]
        return CaseRun(case=case, loaded=tuple(loaded), checks=tuple(failed), error=error)

    def _has_checks(self, case: Case) -> bool:
        """Return whether a run of the case is checked: the scripted model needs a script for that."""
        return bool(case.checks) and (self.model is not None or bool(case.script))

    async def _play(self, case: Case, backend: StateBackend, loaded: dict[str, None]) -> str | None:
        """Return the answer; `None` if the run ended early, because there is nothing to check."""
        has_checks = self._has_checks(case)
        model = self.model or ScriptedSkillModel(choose_skill(self.visible, case.prompt), case.script)
        deps = DeepAgentDeps(backend=backend)
        requests = 0
        async with self._agent.iter(case.prompt, model=model, deps=deps, cancellation_token=self.stop) as run:
            async for node in run:
                if Agent.is_call_tools_node(node):
                    requests += 1
                    loaded |= dict.fromkeys(self._loads(node.model_response))
                    if not has_checks and (loaded or requests == MAX_REQUESTS):
                        return None
            result = cast('AgentRunResult[str]', run.result)  # the loop ends with it
            return result.output if has_checks else None

    def _loads(self, response: ModelResponse) -> Iterable[str]:
        """Yield the names of the skills that a response loads. Other files of skills, and searches, do not count."""
        names = {skill.name for skill in self.visible}
        for call in response.tool_calls:
            args = call.args_as_dict() if call.tool_name == LOAD_TOOL else {}
            name: object = args.get('name')
            if isinstance(name, str) and name.strip() in names and not args.get('file'):
                yield name.strip()


async def _results(checks: Iterable[Check], backend: StateBackend, answer: str) -> AsyncIterator[CheckResult]:
    for check in checks:
        data: bytes | None = answer.encode(errors='replace')
        if check.file is not None:
            try:
                data = await backend.read_bytes(check.file)
            except OSError:
                data = None
        yield CheckResult(check=check, passed=check.passes(data))
