"""The strict look at one skill, for its author: the diagnostics of loading, as errors where the standard says must,
and advice on what a model makes of it.
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
"""The standard's advice: what is longer belongs into files that the body names."""

_LINK = re.compile(r'\]\((?!\w+:|#|/)([^)\s#]+)[^)]*\)')
_MENTION = re.compile(r'`(?:python3? |bash |sh )?((?:scripts|references|assets)/[\w./-]+)')
"""How a body names a file of its skill: a relative link, or a path in one of the usual directories between backticks."""


def validate_skill(path: str | os.PathLike[str]) -> list[SkillDiagnostic]:
    """Return what is wrong with a skill, errors first; nothing if it can be published as it is.

    It is stricter than loading: what breaks a rule of the standard is an error, also if the skill would load.

    Args:
        path: The directory of the skill, or its `SKILL.md`.
    """
    given = Path(path)
    file = given if given.name == FILE_NAME else given / FILE_NAME
    report = Report(path=str(file))
    try:
        found = [*strict(_parsed(file, report)), *report.found]
    except FileNotFoundError:
        report.add('error', 'no-skill-file', None, f'There is no {FILE_NAME}. Write one, or name its directory.')
        found = report.found
    except OSError as error:
        report.add('error', 'unreadable', None, f'It cannot be read: {error.strerror}.')
        found = report.found
    return sorted(found, key=lambda diagnostic: (diagnostic.severity != 'error', diagnostic.line or 0))


def _parsed(file: Path, report: Report) -> list[SkillDiagnostic]:
    """Return what loading says of a file; the report gets advice. Raises `OSError`."""
    status = file.lstat()
    if not stat.S_ISREG(status.st_mode):
        report.add('error', 'not-a-file', None, 'It is no regular file, and was not opened. Put a file in its place.')
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


def _check_body(document: Document, directory: Path, report: Report) -> None:
    lines = document.body.split('\n')
    if not document.body.strip():
        report.add('warning', 'no-body', None, 'There are no instructions below the frontmatter. Write some.')
    if len(lines) > MAX_BODY_LINES:
        message = (
            f'The body has {len(lines):,} lines; write at most {MAX_BODY_LINES}. Move details to files of their own.'
        )
        report.add('warning', 'body-too-long', document.body_line, message)
    named: set[str] = set()
    for line, text in enumerate(lines, document.body_line):
        at = find_invisible(text)
        if at is not None:
            message = f'There is an invisible character (U+{ord(text[at]):04X}), which is left out. Delete it.'
            report.add('warning', 'invisible-characters', line, message)
        for file in (match[1] for pattern in (_LINK, _MENTION) for match in pattern.finditer(text)):
            if file not in named and not (directory / file).exists():
                message = f'The body names {file!r}, and there is no such file. Write it, or take the name out.'
                report.add('warning', 'missing-file', line, message)
            named.add(file)


def _check_files(directory: Path, report: Report) -> None:
    """Look at the files of a skill for what cannot be read by it."""
    root = os.path.realpath(directory)
    for path in islice(_files(root), MAX_ENTRIES):
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            if not is_inside(os.path.realpath(path), root):
                message = f'The link {os.path.relpath(path, root)!r} leads out of the skill and cannot be read.'
                report.add('error', 'link-outside', None, message)
        elif not stat.S_ISREG(status.st_mode):
            report.add('error', 'not-a-file', None, f'{os.path.relpath(path, root)!r} is no regular file. Remove it.')


def _files(root: str) -> Iterator[str]:
    """Yield everything below a directory but directories; links are not followed."""
    for directory, directories, files in os.walk(root):
        yield from (f'{directory}/{name}' for name in files)
        yield from (f'{directory}/{name}' for name in directories if Path(directory, name).is_symlink())
