"""The scripted model, for authors without a key: it loads a skill by a rule on words, then plays the steps of a case.

The rule: a skill gets a point for each word of the prompt in its name or description, and loses one for each word after
`Not for` in the description. The skill with the most points is loaded, the first by name of several, if it has at least
two. A word has at least four letters; two words are equal if their first four letters are. Common words such as `when`
do not count, and `skill` counts in names only.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings

from pydantic_deep._messages.grants import LOAD_TOOL
from pydantic_deep._requests.canned_stream import CannedModel
from pydantic_deep.errors import DeepAgentError
from pydantic_deep.skills import Skill

from ._cases import ScriptStep

SCRIPTED: Final = 'scripted'
"""The name of the model for `--model`."""

MIN_POINTS: Final = 2
"""Minimum number of points for a skill to be loaded."""

COMMON: Final = frozenset(
    (  # noqa: SIM905 - a list would have one word a line
        'about also asked asks from have into need needs only other some such than that their them then '
        'there these they this those user using want wants were what when which will with without would '
        'your'
    ).split()
)
"""Words that say little about a task."""

STEM_CHARS: Final = 4
"""Number of letters by which words are compared, so that `review`, `reviews` and `reviewing` are equal."""

NO_ANSWER: Final = 'The scripted model writes no answer. Add one to `script`.'
"""The answer if the script has none."""

_WORD = re.compile(r'[^\W\d_]{4,}')
_EXCLUSION = re.compile(r'\bnot for\b', re.IGNORECASE)


class ScriptStepError(DeepAgentError):
    """A call of a script failed, so the script does not fit the tools."""


def choose_skill(skills: Iterable[Skill], prompt: str) -> str | None:
    """Return the name of the skill that the scripted model loads for a prompt; `None` if it loads none."""
    words = _stems(prompt)
    scored = [(-_points(skill, words), skill.name) for skill in skills]
    points, name = min(scored, default=(0, ''))
    return name if -points >= MIN_POINTS else None


def _points(skill: Skill, words: set[str]) -> int:
    included, *excluded = _EXCLUSION.split(skill.description, maxsplit=1)
    matched = words & (_stems(skill.name) | _stems(included, {'skil'}))
    return len(matched) - len(words & _stems(' '.join(excluded), {'skil'}))


def _stems(text: str, ignored: Collection[str] = ()) -> set[str]:
    words = set(_WORD.findall(text.casefold())) - COMMON
    return {word[:STEM_CHARS] for word in words}.difference(ignored)


class ScriptedSkillModel(CannedModel):
    """A model without a provider that loads a skill by the rule, then plays the steps of a case."""

    def __init__(self, skill: str | None, script: Sequence[ScriptStep]) -> None:
        """Define the responses.

        Args:
            skill: The name of the skill to load first; `None` to load none.
            script: The steps after that.
        """
        super().__init__()
        load = [] if skill is None else [ScriptStep(tool=LOAD_TOOL, args={'name': skill})]
        self._steps = [*load, *script]
        self._first = len(load)

    @property
    def model_name(self) -> str:
        """The name of this model."""
        return SCRIPTED

    @property
    def system(self) -> str:
        """The name of its provider."""
        return SCRIPTED

    async def answer(
        self, messages: list[ModelMessage], settings: ModelSettings | None, parameters: ModelRequestParameters
    ) -> ModelResponse:
        """Return the next step. Raises `ScriptStepError` if the call of the last one failed."""
        number = sum(isinstance(message, ModelResponse) for message in messages)
        for result in messages[-1].parts:
            if isinstance(result, ToolReturnPart) and result.outcome != 'success':
                name = f'Step {number - self._first} of `script`'
                raise ScriptStepError(f'{name} failed. {result.tool_name}: {result.model_response_str()}')
        step = self._steps[number] if number < len(self._steps) else ScriptStep(answer=NO_ANSWER)
        part = TextPart(step.answer or '') if step.tool is None else ToolCallPart(step.tool, dict(step.args))
        return ModelResponse(parts=[part])
