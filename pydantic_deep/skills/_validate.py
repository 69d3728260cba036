"""Validate one skill strictly, for its author: the diagnostics of loading, with violations of the standard as errors,
and advice on how models use skills.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from ._document import Document, DocumentError, parse_document
from ._files import MAX_ENTRIES
from ._invisible_characters import find_invisible
from ._rules import Report, strict
from ._scan import FILE_NAME, is_inside, parse_file
from ._types import SkillDiagnostic

MAX_BODY_LINES = 500
"""The recommendation of the standard. Further text belongs in files that the body refers to."""

_PLACEHOLDER = re.compile(r'\b(?:to|for) …')
"""An ellipsis in place of words, as in the template of `pydantic-deep skills new`. One at the end of a list does not match."""

_LINK = re.compile(r'\]\((?!\w+:|#|/)([^)\s#]+)[^)]*\)')
_MENTION = re.compile(r'`(?:python3? |bash |sh )?((?:scripts|references|assets)/[\w./-]+)')
"""References to files in a body: a relative link, or a path in one of the usual directories between backticks."""


def validate_skill(path: str | os.PathLike[str]) -> list[SkillDiagnostic]:
    """Return the problems of a skill, errors first; empty if it can be published.

    Validation is stricter than loading: violations of the standard are errors, even if the skill would load.

    Args:
        path: The directory of the skill, or its `SKILL.md`.
    """
    skill_path = Path(path)
    file = skill_path if skill_path.name == FILE_NAME else skill_path / FILE_NAME
    report = Report(path=str(file))
    try:
        diagnostics = [*strict(_parsed(file, report)), *report.diagnostics]
    except FileNotFoundError:
        report.add('error', 'no-skill-file', None, f'There is no {FILE_NAME}. Write one, or pass its directory.')
        diagnostics = report.diagnostics
    except OSError as error:
        report.add('error', 'unreadable', None, f'It cannot be read: {error.strerror}.')
        diagnostics = report.diagnostics
    return sorted(diagnostics, key=lambda diagnostic: (diagnostic.severity != 'error', diagnostic.line or 0))


def _parsed(file: Path, report: Report) -> list[SkillDiagnostic]:
    """Return the diagnostics of loading a file, and add advice to the report. Raises `OSError`."""
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        report.add('error', 'not-a-file', None, 'It is not a regular file, and was not opened. Replace it by a file.')
        return []
    name = Path(os.path.realpath(file.parent)).name
    path = str(file)
    parsed = parse_file(path, status.st_size, status.st_mtime_ns, status.st_ctime_ns, str(file.parent), name, 'project')
    if parsed.skill is not None:
        _check_description(parsed.skill.description, report)
        try:
            document = parse_document(file.read_bytes())
        except DocumentError as error:
            report.add('error', error.code, error.line, str(error))
        else:
            _check_body(document, file.parent, report)
        _check_files(file.parent, report)
    return list(parsed.diagnostics)


def _check_description(description: str, report: Report) -> None:
    if 'when' not in description.casefold():
        message = 'The description does not say when to use the skill. Begin it with `Use this skill when…`.'
        report.add('warning', 'description-when', None, message)
    if _PLACEHOLDER.search(description) is not None:
        message = 'The description has a placeholder, `…`. Replace it by the words of requests that need the skill.'
        report.add('error', 'description-placeholder', None, message)


def _check_body(document: Document, directory: Path, report: Report) -> None:
    lines = document.body.split('\n')
    if not document.body.strip():
        report.add('warning', 'no-body', None, 'There are no instructions below the frontmatter. Write some.')
    if len(lines) > MAX_BODY_LINES:
        message = f'The body has {len(lines):,} lines; write at most {MAX_BODY_LINES}. Move details to separate files.'
        report.add('warning', 'body-too-long', document.body_line, message)
    named: set[str] = set()
    for line, text in enumerate(lines, document.body_line):
        at = find_invisible(text)
        if at is not None:
            message = f'There is an invisible character (U+{ord(text[at]):04X}), which is ignored. Delete it.'
            report.add('warning', 'invisible-characters', line, message)
        for file in (match[1] for pattern in (_LINK, _MENTION) for match in pattern.finditer(text)):
            if file not in named and not (directory / file).exists():
                message = f'The body refers to {file!r}, which does not exist. Create it, or remove the reference.'
                report.add('warning', 'missing-file', line, message)
            named.add(file)


def _check_files(directory: Path, report: Report) -> None:
    """Check the files of a skill for links and special files."""
    root = os.path.realpath(directory)
    for path in islice(_files(root), MAX_ENTRIES):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            if not is_inside(os.path.realpath(path), root):
                message = (
                    f'The link {os.path.relpath(path, root)!r} has a target outside of the skill and cannot be read.'
                )
                report.add('error', 'link-outside', None, message)
        elif not stat.S_ISREG(status.st_mode):
            report.add(
                'error', 'not-a-file', None, f'{os.path.relpath(path, root)!r} is not a regular file. Remove it.'
            )


def _files(root: str) -> Iterator[str]:
    """Yield all entries below a directory except directories, without following links."""
    for directory, directories, files in os.walk(root):
        yield from (f'{directory}/{name}' for name in files)
        yield from (f'{directory}/{name}' for name in directories if Path(directory, name).is_symlink())
