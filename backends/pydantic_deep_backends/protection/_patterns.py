"""The patterns of protected files, compiled. Pure.

Names are compared as on the most lenient file systems: case and the characters that HFS+ ignores do not count, and
`GIT~1`, the Windows short name of `.git`, equals `.git`. So a name that is protected on one system is protected on all.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache

_GIT_DIR = '$GIT_DIR'

_IGNORABLE = re.compile('[\u200c-\u200f\u202a-\u202e\u206a-\u206f\ufeff]')
"""Characters that HFS+ ignores in names, as in git's `utf8.c`."""

_SHORT_NAME = 'git~1'


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    names: tuple[re.Pattern[str], ...]
    """One expression per name."""
    text: str
    """The pattern as written, without its prefix and trailing slash."""
    is_anchored: bool
    in_git_dir: bool
    has_contents: bool
    """Whether it matches a directory with everything in it."""


class ProtectedPatterns:
    """Compiled patterns of protected files.

    Args:
        patterns: As in `PROTECTED_FILES`.

    Raises:
        ValueError: A pattern is invalid.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        parsed = [_parse(pattern) for pattern in patterns]
        self._patterns = [rule for rule in parsed if not rule.in_git_dir]
        self._in_git_dir = [rule for rule in parsed if rule.in_git_dir]
        self.is_empty = not parsed
        """Whether there are no patterns."""
        self.has_git = bool(self._in_git_dir)
        """Whether a pattern applies to git directories."""
        self.literals = tuple(
            rule.text for rule in self._patterns if not re.search(r'[*?\[]', rule.text) and rule.text != '.git'
        )
        """The protected paths at the root of the files that contain no wildcards."""
        last = {fold(rule.text.rpartition('/')[2]) for rule in parsed}
        is_open = any(re.search(r'[*?\[]', name) for name in last)
        self.may_match: Callable[[str], bool] = (lambda name: True) if is_open else last.__contains__
        """Returns whether any pattern can end in a name, which must be folded by `fold`."""

    def protects(self, parts: Sequence[str]) -> bool:
        """Return whether a path is protected by its names, or could turn a directory into a protected one."""
        names = [fold(part) for part in parts]
        in_git = '.git' in names[:-1]
        if self.has_git and names and names[-1] == 'head' and not in_git:
            return True  # it turns its directory into a repository, with a configuration that git obeys
        for end in range(1, len(names) + 1):
            if self.ends_at(names[:end], is_dir=end < len(names)):
                return True
        if not in_git:
            return False
        begin = names.index('.git') + 1
        return any(self.protects_in_git_dir(parts[place:]) for place in range(begin, len(parts)))

    def ends_at(self, names: Sequence[str], *, is_dir: bool) -> bool:
        """Return whether a pattern outside of git directories matches exactly this path.

        Args:
            names: The path, with names folded by `fold`.
            is_dir: Whether the path is a directory.
        """
        return any(
            (pattern.has_contents or not is_dir)
            and (len(pattern.names) == len(names) if pattern.is_anchored else len(pattern.names) <= len(names))
            and _match(pattern.names, names[len(names) - len(pattern.names) :])
            for pattern in self._patterns
        )

    def ends_in_git_dir(self, names: Sequence[str], *, is_dir: bool) -> bool:
        """Return whether a pattern for git directories matches exactly this path.

        Args:
            names: The path within a git directory, with names folded by `fold`.
            is_dir: Whether the path is a directory.
        """
        return any(
            (pattern.has_contents or not is_dir) and len(pattern.names) == len(names) and _match(pattern.names, names)
            for pattern in self._in_git_dir
        )

    def protects_in_git_dir(self, parts: Sequence[str]) -> bool:
        """Return whether a path within a git directory is protected."""
        names = [fold(part) for part in parts]
        return any(self.ends_in_git_dir(names[:end], is_dir=end < len(names)) for end in range(1, len(names) + 1))


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[str, ...]) -> ProtectedPatterns:
    """Compile patterns. Raises `ValueError` as `ProtectedPatterns`."""
    return ProtectedPatterns(patterns)


def fold(name: str) -> str:
    """Return a name in the form used for comparisons."""
    folded = name.lower() if name.isascii() else unicodedata.normalize('NFC', _IGNORABLE.sub('', name)).casefold()
    return '.git' if folded == _SHORT_NAME else folded


def is_git_name(name: str) -> bool:
    """Return whether any file system treats a name as `.git`."""
    return fold(name) == '.git'


def _match(patterns: Sequence[re.Pattern[str]], names: Sequence[str]) -> bool:
    return all(pattern.fullmatch(name) for pattern, name in zip(patterns, names, strict=True))


def _parse(pattern: str) -> _Pattern:
    text = pattern.removesuffix('/')
    is_anchored = text.startswith('/')
    text = text.removeprefix('/')
    in_git_dir = not is_anchored and text.startswith(f'{_GIT_DIR}/')
    text = text.removeprefix(f'{_GIT_DIR}/') if in_git_dir else text
    names = text.split('/')
    if not all(names) or any(name in ('.', '..', '**') or name.startswith(_GIT_DIR) for name in names):
        raise ValueError(
            f'{pattern!r} is not a pattern for protected files. Write names with `/` between them, such as `.envrc`, '
            '`.vscode/` or `$GIT_DIR/hooks/`.'
        )
    return _Pattern(
        names=tuple(_expression(fold(name)) for name in names),
        text=text,
        is_anchored=is_anchored,
        in_git_dir=in_git_dir,
        has_contents=pattern.endswith('/'),
    )


@cache
def _expression(name: str) -> re.Pattern[str]:
    return re.compile(fnmatch.translate(name))
