"""Parse a frontmatter leniently by the rules of the standard: usable skills are loaded, with a diagnostic for each
violation. Pure.

The rules are those of the Agent Skills specification (agentskills.io) of 2026-08.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from ._document import MAX_HEADER_CHARS
from ._invisible_characters import find_invisible, strip_invisible
from ._types import Severity, Skill, SkillDiagnostic
from ._yaml import Items, Pairs, Scalar, UnusableYamlError, Value, parse_yaml, recover_pairs

MAX_NAME_CHARS = 64
MAX_DESCRIPTION_CHARS = 1024
MAX_COMPATIBILITY_CHARS = 500

_ALLOWED_TOOL = re.compile(r'[^\s,()]+(?:\([^)]*\))?')
"""Matches an entry of `allowed-tools`: a name, optionally with a pattern in parentheses, which may contain spaces."""

FIELDS = ('name', 'description', 'license', 'compatibility', 'metadata', 'allowed-tools', 'disable-model-invocation')
"""The supported fields. The last one is not part of the standard."""

STRICT_CODES = frozenset(
    {
        'allowed-tools-form',
        'compatibility-too-long',
        'description-too-long',
        'duplicate-field',
        'field-not-text',
        'frontmatter-late',
        'metadata-not-text',
        'name-differs',
        'name-form',
        'name-too-long',
        'no-name',
        'not-yaml',
        'unknown-field',
    }
)
"""Warnings that violate the standard: errors in `validate_skill`."""


@dataclass(kw_only=True)
class Report:
    """The diagnostics of one file."""

    path: str
    """The path of the file."""
    diagnostics: list[SkillDiagnostic] = field(default_factory=list[SkillDiagnostic])

    def add(self, severity: Severity, code: str, line: int | None, message: str) -> None:
        """Add a diagnostic."""
        self.diagnostics.append(diagnostic(severity, code, self.path, message, line))


def diagnostic(severity: Severity, code: str, path: str, message: str, line: int | None = None) -> SkillDiagnostic:
    """Return a diagnostic with a printable path."""
    return SkillDiagnostic(severity=severity, path=shown_path(path), line=line, message=message, code=code)


def shown_path(path: str) -> str:
    """Return a printable form of a path, whatever bytes it contains."""
    return path.encode(errors='backslashreplace').decode() if not path.isascii() else path


def parse_frontmatter(header: str, first_line: int, name: str, report: Report) -> Skill | None:
    """Return the skill that a frontmatter describes; `None` if it is unusable.

    Args:
        header: The frontmatter, without the fences.
        first_line: The line number of the frontmatter, from 1.
        name: The name of the directory.
        report: Collects the diagnostics.
    """
    if len(header) > MAX_HEADER_CHARS:
        report.add('error', 'frontmatter-too-long', first_line, _too_long('The frontmatter', header, MAX_HEADER_CHARS))
        return None
    try:
        value = parse_yaml(header)
    except UnusableYamlError as error:
        line = first_line + error.line
        report.add(
            'warning', 'not-yaml', line, f'The frontmatter is not valid YAML: {error}. Quote the text after the colon.'
        )
        value = recover_pairs(header)
    if not isinstance(value, Pairs):
        report.add('error', 'no-description', first_line, 'The frontmatter has no fields. Write name and description.')
        return None
    return _Reading(fields=_fields(value, first_line, report), first_line=first_line, report=report).skill(name)


def name_problem(name: str) -> str | None:
    """Return a description of a malformed name; `None` if the name is valid."""
    normal = unicodedata.normalize('NFKC', name)
    if normal != normal.lower():
        return 'has uppercase letters'
    if not all(character == '-' or character.isalnum() for character in normal):
        return 'has characters other than letters, digits and hyphens'
    if normal.startswith('-') or normal.endswith('-') or '--' in normal:
        return 'starts or ends with a hyphen, or has two in a row'
    return None if normal else 'is empty'


def _fields(value: Pairs, first_line: int, report: Report) -> Mapping[str, Value]:
    fields: dict[str, Value] = {}
    for key, item in value.pairs:
        line = first_line + key.line
        if key.text in fields:
            report.add('warning', 'duplicate-field', line, f'{key.text!r} occurs twice. The last one is used.')
        elif key.text not in FIELDS:
            message = f'{_short(key.text)!r} is not a skill field. Move it to `metadata`, or remove it.'
            report.add('warning', 'unknown-field', line, message)
        fields[key.text] = item
        if key.text in ('description', 'compatibility') and isinstance(item, Scalar) and item.is_cut:
            message = (
                f'`{key.text}` is cut: YAML ignores text after ` #`, and a first word with `&`. Quote the whole text.'
            )
            report.add('warning', 'text-cut', line, message)
    return fields


@dataclass(frozen=True, kw_only=True)
class _Reading:
    """The fields of a frontmatter while it is parsed."""

    fields: Mapping[str, Value]
    first_line: int
    report: Report

    def skill(self, directory_name: str) -> Skill | None:
        description = self._line_of_text('description')
        if not description:
            line = self._line('description') if 'description' in self.fields else self.first_line
            message = 'There is no description. Say what the skill does and when to use it.'
            self.report.add('error', 'no-description', line, message)
            return None
        return Skill(
            name=self._name(directory_name),
            description=self._cut('description', description, MAX_DESCRIPTION_CHARS),
            allowed_tools=self._allowed_tools(),
            license=self._line_of_text('license') or None,
            compatibility=self._cut('compatibility', self._line_of_text('compatibility'), MAX_COMPATIBILITY_CHARS)
            or None,
            metadata=self._metadata(),
            is_hidden=self._is_true('disable-model-invocation'),
        )

    def _name(self, directory_name: str) -> str:
        fallback = clean_name(directory_name)
        name = self._line_of_text('name')
        if not name:
            line = self._line('name') if 'name' in self.fields else self.first_line
            self.report.add(
                'warning', 'no-name', line, f'There is no name. That of the directory is used: {fallback!r}.'
            )
            return fallback
        line = self._line('name')
        if len(name) > MAX_NAME_CHARS:
            self.report.add('warning', 'name-too-long', line, _too_long('The name', name, MAX_NAME_CHARS))
        name = name[:MAX_NAME_CHARS].rstrip()
        problem = name_problem(name)
        if problem is not None:
            self.report.add('warning', 'name-form', line, f'The name {name!r} {problem}. Write it like `my-skill`.')
        if unicodedata.normalize('NFKC', name) != unicodedata.normalize('NFKC', fallback):
            message = f'The name is {name!r} and the directory {fallback!r}. Give both the same name.'
            self.report.add('warning', 'name-differs', line, message)
        return name

    def _allowed_tools(self) -> tuple[str, ...]:
        value = self.fields.get('allowed-tools')
        if value is None:
            return ()
        texts = [value] if isinstance(value, Scalar) else list(value.values) if isinstance(value, Items) else []
        written = [text.text for text in texts if isinstance(text, Scalar)]
        if not isinstance(value, Scalar) or ',' in re.sub(r'\([^)]*\)', '', value.text):
            message = 'Write `allowed-tools` as one text with spaces between the tools.'
            self.report.add('warning', 'allowed-tools-form', self._line('allowed-tools'), message)
        return tuple(tool for text in written for tool in _ALLOWED_TOOL.findall(text))

    def _metadata(self) -> Mapping[str, str]:
        value = self.fields.get('metadata')
        if value is None:
            return {}
        if not isinstance(value, Pairs):
            message = '`metadata` has no fields and is ignored. Write `key: value` lines, indented below it.'
            self.report.add('warning', 'metadata-not-text', self._line('metadata'), message)
            return {}
        for key, item in value.pairs:
            if not (isinstance(item, Scalar) and item.is_string):
                message = f'{_short(key.text)!r} in `metadata` is not a string. Quote it.'
                self.report.add('warning', 'metadata-not-text', self.first_line + key.line, message)
        return {key.text: _text_of(item) for key, item in value.pairs}

    def _is_true(self, name: str) -> bool:
        value = self.fields.get(name)
        return isinstance(value, Scalar) and value.text.lower() in ('true', 'yes', 'on')

    def _line_of_text(self, name: str) -> str:
        """Return a field as one line of visible text; empty if it is missing."""
        value = self.fields.get(name)
        if value is None or (isinstance(value, Scalar) and _is_null(value)):
            return ''
        if not (isinstance(value, Scalar) and value.is_string):
            self.report.add('warning', 'field-not-text', self._line(name), f'`{name}` is not a string. Quote it.')
        text = _text_of(value)
        at = find_invisible(text)
        if at is not None:
            message = f'`{name}` has an invisible character (U+{ord(text[at]):04X}), which is ignored. Delete it.'
            self.report.add('warning', 'invisible-characters', self._line(name), message)
            text = strip_invisible(text)
        return ' '.join(text.split())

    def _cut(self, name: str, text: str, limit: int) -> str:
        if len(text) <= limit:
            return text
        self.report.add('warning', f'{name}-too-long', self._line(name), _too_long(f'`{name}`', text, limit))
        return text[:limit]

    def _line(self, name: str) -> int:
        return self.first_line + self.fields[name].line


def clean_name(name: str) -> str:
    """Return the name of a directory as a skill name: one short line of visible text."""
    return ' '.join(strip_invisible(name).split())[:MAX_NAME_CHARS].strip() or 'skill'


def strict(diagnostics: list[SkillDiagnostic]) -> Iterator[SkillDiagnostic]:
    """Yield diagnostics, turning violations of the standard into errors."""
    for each in diagnostics:
        yield replace(each, severity='error') if each.code in STRICT_CODES else each


def _text_of(value: Value) -> str:
    return value.text if isinstance(value, Scalar) else json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Value) -> object:
    """Return a value in the form of JSON."""
    if isinstance(value, Scalar):
        return value.text
    if isinstance(value, Items):
        return [_plain(item) for item in value.values]
    return {key.text: _plain(item) for key, item in value.pairs}


def _is_null(value: Scalar) -> bool:
    return not value.is_string and value.text.lower() in ('', '~', 'null')


def _too_long(what: str, text: str, limit: int) -> str:
    return f'{what} has {len(text):,} characters; at most {limit:,} are used. Make it shorter.'


def _short(text: str) -> str:
    return text if len(text) <= 100 else f'{text[:100]}…'
