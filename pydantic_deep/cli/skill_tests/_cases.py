"""The cases of a skill, from `evals/evals.json` and `evals/eval_queries.json`. Every problem is a diagnostic.

The two formats are those of the Agent Skills standard (https://agentskills.io, "Evaluating skills" and "Optimizing
descriptions"). `checks` and `script` are additions.
"""

from __future__ import annotations

import json
import os
import stat
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, TypeVar, cast

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from pydantic_deep._text.escapes import is_blank
from pydantic_deep.skills import Skill, SkillDiagnostic

from ._checks import Check, file_path

EVALS_FILE: Final = 'evals/evals.json'
"""The file of tasks with checks, in a skill."""

QUERIES_FILE: Final = 'evals/eval_queries.json'
"""The file of prompts that should or should not load the skill."""

FILES_FOLDER: Final = 'evals/files/'
"""The folder of files to start from. Paths below it are paths in the backend of a run."""

MAX_CASES_BYTES: Final = 1024 * 1024
"""Maximum size of a file of cases. It is written by hand."""

T = TypeVar('T')


def _not_blank(text: str) -> str:
    if is_blank(text):
        raise ValueError('it is blank. Write a prompt.')
    return text


def _text_of_id(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


Prompt = Annotated[str, AfterValidator(_not_blank)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra='forbid', frozen=True, strict=True)


class ScriptStep(_Strict):
    """One response of the scripted model: a call or the answer."""

    tool: str | None = None
    """The name of a tool."""
    args: dict[str, JsonValue] = {}
    """The arguments of the call."""
    answer: str | None = None
    """The final answer."""

    @model_validator(mode='after')
    def _is_call_or_answer(self) -> ScriptStep:
        if (self.tool is None) is (self.answer is None):
            raise ValueError('a step is a `tool` with `args`, or an `answer`. Write one of both.')
        return self


class Eval(_Strict):
    """One task."""

    id: Annotated[str, BeforeValidator(_text_of_id)]
    prompt: Prompt
    expected_output: str | None = None
    files: list[str] = []
    expectations: list[str] = Field(default=[], validation_alias=AliasChoices('expectations', 'assertions'))
    checks: list[Check] = []
    script: list[ScriptStep] = []

    @model_validator(mode='after')
    def _ends_with_the_answer(self) -> Eval:
        if any(step.answer is not None for step in self.script[:-1]):
            raise ValueError('an `answer` ends the run. Move it to the end of `script`.')
        return self


class EvalSet(_Strict):
    """The contents of `evals/evals.json`."""

    skill_name: str
    evals: list[Eval]


class Query(_Strict):
    """One prompt of `evals/eval_queries.json`."""

    query: Prompt
    should_trigger: bool


_FIELDS: Mapping[str, type[BaseModel]] = {'evals': Eval, 'checks': Check, 'script': ScriptStep}
"""The models of list items, by the name of the list."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One prompt to run."""

    skill: str
    """The name of the skill that the case is about."""
    id: str
    """The id in `evals.json`, or `query-1` and so on."""
    prompt: str
    should_load: bool
    """Whether the prompt should load the skill."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """The files to start from, by path."""
    checks: tuple[Check, ...] = ()
    """The checks after the run. Without any, the run ends when a skill is loaded."""
    script: tuple[ScriptStep, ...] = ()
    """The responses of the scripted model, after it has loaded a skill."""
    expectations: int = 0
    """The number of expectations in words, which nobody judges."""

    def is_named(self, names: list[str]) -> bool:
        """Return whether a name of the command line means this case: `ID` or `SKILL/ID`."""
        return self.id in names or f'{self.skill}/{self.id}' in names


class _Problem(Exception):
    """A file of cases, or a file that it names, cannot be used."""

    def __init__(self, message: str, line: int | None = None) -> None:
        self.line = line
        super().__init__(message)


@dataclass
class CaseReader:
    """Reads the cases of one skill."""

    skill: Skill
    diagnostics: list[SkillDiagnostic] = field(default_factory=list[SkillDiagnostic])

    def read(self) -> list[Case]:
        """Return the cases. Problems are in `diagnostics`."""
        evals = self._parse(EVALS_FILE, TypeAdapter(EvalSet), EvalSet)
        queries = self._parse(QUERIES_FILE, TypeAdapter(list[Query]), Query)
        cases = [] if evals is None else list(self._cases_of(evals))
        for number, query in enumerate(queries or (), 1):
            cases.append(
                Case(skill=self.skill.name, id=f'query-{number}', prompt=query.query, should_load=query.should_trigger)
            )
        for id, count in Counter(case.id for case in cases).items():
            if count > 1:
                self._note(EVALS_FILE, f'evals: the id {id!r} occurs {count} times. Use different ones.')
        if self.skill.is_hidden and any(case.should_load for case in cases):
            message = 'a model cannot load this skill, because of `disable-model-invocation`. Remove one of both.'
            self._note(EVALS_FILE if evals else QUERIES_FILE, message)
        return cases

    def _cases_of(self, evals: EvalSet) -> Iterator[Case]:
        if evals.skill_name != self.skill.name:
            message = f'skill_name: it is {evals.skill_name!r}. Write the name of the skill, {self.skill.name!r}.'
            self._note(EVALS_FILE, message)
        for index, item in enumerate(evals.evals):
            yield Case(
                skill=self.skill.name,
                id=item.id,
                prompt=item.prompt,
                should_load=True,
                files=self._files_of(item, f'evals[{index}].files'),
                checks=tuple(item.checks),
                script=tuple(item.script),
                expectations=len(item.expectations),
            )

    def _files_of(self, item: Eval, place: str) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for index, name in enumerate(item.files):
            try:
                path = file_path(name.removeprefix(FILES_FOLDER) if name.startswith(FILES_FOLDER) else _name(name))
                if path in files:
                    raise _Problem(f'two files would be {path} in the run. Rename one.')
                files[path] = self._read(name)
            except FileNotFoundError:
                self._note(
                    EVALS_FILE, f'{place}[{index}]: {name!r} does not exist. Write a path relative to the skill.'
                )
            except (_Problem, ValueError) as error:
                self._note(EVALS_FILE, f'{place}[{index}]: {error}')
        return files

    def _parse(self, file: str, adapter: TypeAdapter[T], top: type[BaseModel]) -> T | None:
        try:
            return adapter.validate_python(_parse_json(self._read(file, MAX_CASES_BYTES)))
        except FileNotFoundError:
            return None
        except _Problem as problem:
            self._note(file, str(problem), problem.line)
        except ValidationError as error:
            for problem in error.errors():
                self._note(file, _describe(cast('Mapping[str, Any]', problem), top))
        return None

    def _read(self, file: str, limit: int | None = None) -> bytes:
        """Return a file of the skill. Raises `_Problem`, or `FileNotFoundError`."""
        root = Path(os.path.realpath(cast('Path', self.skill.directory)))
        path = Path(os.path.realpath(root / file))
        if not path.is_relative_to(root):
            raise _Problem(f'{file!r} is outside of the skill. Copy it into {FILES_FOLDER}.')
        try:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise _Problem(f'{file!r} is not a file. Name files one by one.')
            if limit is not None and status.st_size > limit:
                raise _Problem(f'It has {status.st_size:,} bytes; at most {limit:,} are read. Remove cases.')
            return path.read_bytes()
        except FileNotFoundError:
            raise
        except OSError as error:
            raise _Problem(f'{file!r} cannot be read: {error.strerror}.') from error

    def _note(self, file: str, message: str, line: int | None = None) -> None:
        self.diagnostics.append(
            SkillDiagnostic(
                severity='error',
                path=f'{self.skill.directory}/{file}',
                line=line,
                message=message,
                code='invalid-cases',
            )
        )


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _parse_json(data: bytes) -> object:
    try:
        return json.loads(data.decode('utf-8-sig'), object_pairs_hook=_unique)
    except UnicodeDecodeError:
        raise _Problem('It is not UTF-8. Convert it.') from None
    except json.JSONDecodeError as error:
        raise _Problem(f'It is not JSON: {error.msg}, in column {error.colno}. Correct it.', error.lineno) from None
    except (RecursionError, ValueError):
        raise _Problem('It is nested too deeply, or has a number with too many digits. Correct it.') from None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        (name, _), *_ = Counter(name for name, _ in pairs).most_common(1)
        raise _Problem(f'An object has the member {name!r} twice, so one is lost. Remove one.')
    return members


def _describe(problem: Mapping[str, Any], top: type[BaseModel]) -> str:
    """Return one problem of pydantic as a sentence with its place and a remedy."""
    location = cast('tuple[str | int, ...]', problem['loc'])
    place = ''.join(f'[{part}]' if isinstance(part, int) else f'.{part}' for part in location).removeprefix('.')
    where = f'{place}: ' if place else ''
    match problem['type']:
        case 'missing':
            return f'{where}it is missing. Add it.'
        case 'extra_forbidden':
            lists = [part for part in location[:-1] if isinstance(part, str)]
            model = _FIELDS[lists[-1]] if lists else top
            return f'{where}there is no such field. Fields: {", ".join(model.model_fields)}.'
        case 'value_error':
            return f'{where}{problem["ctx"]["error"]}'
        case _:
            return f'{where}{problem["msg"][0].lower()}{problem["msg"][1:]}. Correct it.'
