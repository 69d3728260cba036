"""`TurnCase`: a turn as a folder that people can read, edit and commit.

```text
refund/
  case.json        the prompt, the answers to approvals, the expected result, the evaluators
  files/           the files before the turn
  expected/        the files that the turn added or changed
  memory/          what the agent remembered across conversations
  recording.json   the recorded turn, for an exact replay: generated, and optional
```
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_ai.messages import UserContent

from pydantic_deep._checks import check_prompt, describe_problem
from pydantic_deep.approvals import Approve, Decision, Deny, Edit, Respond
from pydantic_deep.audit import redact
from pydantic_deep.todos import Todo
from pydantic_deep_backends import FileVersion, Tree, digest_of

from ._turn_rows import TurnRows
from .errors import CaseFormatError, SecretsFoundError

FORMAT_VERSION: Final = 1
"""The format version that `write_case` writes."""

_ANY_OWNER: Final = 'person'
"""The owner of the memory of a case that people wrote."""

_REDACTED: Final = re.compile(r'\[redacted: ([^\[\]\n]{1,80})\]')


class _Strict(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra='forbid')


class AskedCall(_Strict):
    """A call that needed approval, and the answer to it."""

    tool: str
    """The name of the tool."""
    arguments: dict[str, JsonValue]
    """The arguments, as the model wrote them."""
    subagents: list[str] = Field(default_factory=list[str])
    """The names of the subagents that lead to the call."""
    answer: Literal['approve', 'edit', 'deny', 'respond']
    """The kind of the answer."""
    value: JsonValue = None
    """The edited arguments, the reason of a denial, or the response."""

    @property
    def decision(self) -> Decision:
        """The answer as a decision."""
        match self.answer:
            case 'approve':
                return Approve()
            case 'edit':
                return Edit(cast('dict[str, JsonValue]', self.value))
            case 'deny':
                return Deny(cast('str', self.value))
            case _:
                return Respond(self.value)


class TurnUsage(_Strict):
    """The usage of a turn, with its subagents."""

    requests: int = 0
    """The number of requests."""
    tokens: int = 0
    """Input and output tokens."""
    cost: Decimal | None = None
    """US dollars; `None` if a price is unknown."""


class Expected(_Strict):
    """The expected result of a case. `record` writes the recorded one."""

    output: JsonValue = None
    """The output."""
    removed: list[str] = Field(default_factory=list[str])
    """The files that the turn removed. The added and changed ones are in the folder `expected`."""
    todos: list[dict[str, str]] = Field(default_factory=list[dict[str, str]])
    """The todos after the turn."""
    usage: TurnUsage = Field(default_factory=TurnUsage)
    """The recorded usage, with which others are compared."""


class CaseFile(_Strict):
    """The contents of `case.json`."""

    format_version: Literal[1] = FORMAT_VERSION
    agent: str | None = None
    model: str | None = None
    version: str | None = None
    prompt: JsonValue
    answers: list[AskedCall] = Field(default_factory=list[AskedCall])
    memory_owner: str | None = None
    expected: Expected = Field(default_factory=Expected)
    evaluators: list[JsonValue] = Field(default_factory=list[JsonValue])


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """The result of a turn, expected or actual."""

    output: object
    """The output."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """The contents of all files after the turn, keyed by path."""
    todos: Sequence[Todo] = ()
    """The todos after the turn."""
    approvals: Sequence[AskedCall] = ()
    """The calls that needed approval, in order."""
    usage: TurnUsage = field(default_factory=TurnUsage)
    """The usage of the turn."""
    differences: Sequence[str] = ()
    """The differences from the recording, if the turn was replayed."""


@dataclass(frozen=True, kw_only=True)
class TurnCase:
    """A case: a turn with the files before it and the expected result."""

    name: str
    """The name of the folder."""
    prompt: str | Sequence[UserContent]
    """The user prompt."""
    files: Mapping[str, bytes] = field(default_factory=dict[str, bytes], repr=False)
    """The contents of all files before the turn, keyed by path."""
    executables: frozenset[str] = frozenset()
    """The paths of executable files."""
    memory_owner: str | None = None
    """The owner of the agent's memory; `None` if it has none."""
    memory: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    """The contents of the files of the memory before the turn, keyed by name."""
    expected: TurnResult
    """The expected result, by default the recorded one."""
    evaluators: Sequence[JsonValue] = ()
    """The evaluators, in the short form of pydantic-evals."""
    agent: str | None = None
    """The name of the recorded agent."""
    model: str | None = None
    """The name of the recorded model."""
    version: str | None = None
    """The id of the recorded version."""
    rows: TurnRows | None = field(default=None, repr=False)
    """The recorded turn; `None` for a case without `recording.json`, which cannot be replayed."""
    unrepeatable: frozenset[tuple[str, str]] | None = None
    """The calls whose results depended on something outside of the case when it was recorded, as ids of response and
    call: a replay does not compare them. `None` if no agent was there to find them: a replay runs no tools.
    """

    @property
    def tree(self) -> Tree:
        """The files before the turn."""
        return Tree.of(
            {
                path: FileVersion(
                    digest=digest_of(data), size=len(data), mode=0o755 if path in self.executables else 0o644
                )
                for path, data in self.files.items()
            }
        )


def write_case(case: TurnCase, directory: str | Path, *, allow_secrets: bool = False) -> Path:
    """Write a case to a folder of its name, and return the folder.

    Args:
        case: The case.
        directory: The parent of the folder.
        allow_secrets: Whether to write a case with what looks like secrets. Secrets are never redacted: another prompt
            or file would be another case.

    Raises:
        SecretsFoundError: The case has what looks like secrets.
        FileExistsError: The folder exists.
    """
    changed = {path: data for path, data in case.expected.files.items() if case.files.get(path) != data}
    document = CaseFile(
        agent=case.agent,
        model=case.model,
        version=case.version,
        prompt=_prompts().dump_python(case.prompt, mode='json'),
        answers=list(case.expected.approvals),
        memory_owner=case.memory_owner,
        expected=Expected(
            output=cast('JsonValue', case.expected.output),
            removed=sorted(case.files.keys() - case.expected.files.keys()),
            todos=[asdict(todo) for todo in case.expected.todos],
            usage=case.expected.usage,
        ),
        evaluators=list(case.evaluators),
    )
    values: dict[str, JsonValue] = {'case.json': document.model_dump(mode='json', exclude_defaults=True)}
    values['case.json'] = {'format_version': FORMAT_VERSION, **cast('dict[str, JsonValue]', values['case.json'])}
    if case.rows is not None:
        values['recording.json'] = {
            'format_version': FORMAT_VERSION,
            'unrepeatable': None if case.unrepeatable is None else [list(call) for call in sorted(case.unrepeatable)],
            **case.rows.to_json(),
        }
    files = {f'files{path}': data for path, data in case.files.items()}
    files |= {f'expected{path}': data for path, data in changed.items()}
    files |= {f'memory/{name}': content.encode() for name, content in case.memory.items()}
    if not allow_secrets and (found := [*_secrets_in(values), *_secrets_in(_texts(files))]):
        raise SecretsFoundError(found)
    folder = Path(directory) / case.name
    folder.mkdir(parents=True)
    for name, value in values.items():
        (folder / name).write_text(json.dumps(value, indent=1, ensure_ascii=False) + '\n', 'utf-8')
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        if name.removeprefix('files') in case.executables:
            path.chmod(0o755)
    return folder


def read_case(folder: str | Path) -> TurnCase:
    """Read a case from its folder.

    Raises:
        CaseFormatError: The folder is not a case, or this release cannot read it.
    """
    folder = Path(folder)
    described, has_recording = _load(folder / 'case.json'), (folder / 'recording.json').exists()
    recording = _load(folder / 'recording.json') if has_recording else {}
    files, executables = _read_files(folder / 'files')
    changed, _ = _read_files(folder / 'expected')
    remembered, _ = _read_files(folder / 'memory')
    try:
        document = CaseFile.model_validate(described)
        if isinstance(document.prompt, str) and not document.prompt.strip():
            raise ValueError('its `prompt` is blank. Write what the agent is asked to do.')
        prompt = _prompts().validate_python(document.prompt)
        check_prompt('prompt', prompt)
        expected = document.expected
        after = {path: data for path, data in files.items() if path not in expected.removed} | changed
        calls = recording.get('unrepeatable')
        return TurnCase(
            name=folder.name,
            prompt=prompt,
            files=files,
            executables=executables,
            memory_owner=document.memory_owner or (_ANY_OWNER if remembered else None),
            memory={path.removeprefix('/'): data.decode() for path, data in remembered.items()},
            expected=TurnResult(
                output=expected.output,
                files=after,
                todos=[Todo(**cast('Any', todo)) for todo in expected.todos],
                approvals=document.answers,
                usage=expected.usage,
            ),
            evaluators=document.evaluators,
            agent=document.agent,
            model=document.model,
            version=document.version,
            rows=TurnRows.from_json(recording) if has_recording else None,
            unrepeatable=None if calls is None else frozenset((response, call) for response, call in calls),
        )
    except ValidationError as error:
        raise CaseFormatError(folder, f'{describe_problem(error)}.') from error
    except (LookupError, TypeError, ValueError) as error:
        raise CaseFormatError(folder, str(error)) from error


def read_cases(directory: str | Path) -> list[TurnCase]:
    """Read the cases of a directory, sorted by name, or the one case if the directory is its folder.

    Raises:
        CaseFormatError: The directory has no cases, or one cannot be read.
    """
    directory = Path(directory)
    found = [directory] if (directory / 'case.json').exists() else sorted(directory.glob('*/case.json'))
    if not found:
        raise CaseFormatError(directory, 'neither it nor a folder in it has a `case.json`.')
    return [read_case(path if path == directory else path.parent) for path in found]


def _load(path: Path) -> dict[str, Any]:
    try:
        value: object = json.loads(path.read_text('utf-8-sig'))
    except (OSError, ValueError) as error:
        raise CaseFormatError(path, str(error)) from error
    document = cast('dict[str, Any]', value) if isinstance(value, dict) else {}
    number: object = document.get('format_version')
    if number != FORMAT_VERSION:
        is_newer = isinstance(number, int) and number > FORMAT_VERSION
        hint = ' Upgrade pydantic-deep.' if is_newer else ''
        raise CaseFormatError(
            path, f'its `format_version` is {number!r}, and this release reads {FORMAT_VERSION}.{hint}'
        )
    return document


def _read_files(folder: Path) -> tuple[dict[str, bytes], frozenset[str]]:
    """Return the contents of the files below a folder, keyed by absolute virtual path, and the executable ones."""
    found = {
        f'/{path.relative_to(folder).as_posix()}': path
        for path in sorted(folder.rglob('*'))
        if path.is_file() and not path.is_symlink()
    }
    executables = frozenset(name for name, path in found.items() if path.stat().st_mode & 0o100)
    return {name: path.read_bytes() for name, path in found.items()}, executables


def _texts(files: Mapping[str, bytes]) -> dict[str, JsonValue]:
    return {name: data.decode('utf-8', 'replace') for name, data in files.items()}


def _secrets_in(values: Mapping[str, JsonValue]) -> list[str]:
    """Return the kinds of secrets in each value."""
    found: list[str] = []
    for name, value in values.items():
        before, after = json.dumps(value), json.dumps(redact(value))
        if before != after:
            kinds = sorted(set(_REDACTED.findall(after)) - set(_REDACTED.findall(before)))
            found += [f'{kind} in {name}' for kind in kinds or ['secret']]
    return found


@cache
def _prompts() -> TypeAdapter[str | Sequence[UserContent]]:
    return TypeAdapter(str | Sequence[UserContent])
