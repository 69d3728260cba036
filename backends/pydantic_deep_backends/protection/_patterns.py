"""Which names are protected: the patterns of `protection`, compiled. Pure.

Names are compared as the most forgiving file system does: without regard to case and to the characters that HFS+ passes
over, and `GIT~1`, under which Windows knows `.git`, is `.git`. What is protected on one of them is protected on all.
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
"""What HFS+ passes over in a name, as in git's `utf8.c`."""

_SHORT_NAME = 'git~1'


@dataclass(frozen=True, kw_only=True)
class _Pattern:
    names: tuple[re.Pattern[str], ...]
    """One expression for each name."""
    text: str
    """How it is written, without what begins and ends it."""
    is_anchored: bool
    in_git_dir: bool
    has_contents: bool
    """Whether it means a directory with all that is in it."""


class ProtectedPatterns:
    """What is protected.

    Args:
        patterns: As in `PROTECTED_FILES`.

    Raises:
        ValueError: One of them is no pattern.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        parsed = [_parse(pattern) for pattern in patterns]
        self._patterns = [each for each in parsed if not each.in_git_dir]
        self._in_git_dir = [each for each in parsed if each.in_git_dir]
        self.is_empty = not parsed
        """Whether nothing is protected."""
        self.has_git = bool(self._in_git_dir)
        """Whether something in the directories of git is."""
        self.literals = tuple(
            each.text for each in self._patterns if not re.search(r'[*?\[]', each.text) and each.text != '.git'
        )
        """The paths that are protected at the root of the files, as far as they can be written down."""
        last = {fold(each.text.rpartition('/')[2]) for each in parsed}
        is_open = any(re.search(r'[*?\[]', name) for name in last)
        self.may_match: Callable[[str], bool] = (lambda name: True) if is_open else last.__contains__
        """Whether a pattern can end in a name, which is folded."""

    def protects(self, parts: Sequence[str]) -> bool:
        """Return whether a path is protected, as far as names tell. What it may turn a directory into counts too."""
        names = [fold(part) for part in parts]
        in_git = '.git' in names[:-1]
        if self.has_git and names and names[-1] == 'head' and not in_git:
            return True  # it makes a repository of the directory that it is in, whose configuration git obeys
        for end in range(1, len(names) + 1):
            if self.ends_at(names[:end], is_dir=end < len(names)):
                return True
        if not in_git:
            return False
        begin = names.index('.git') + 1
        return any(self.protects_in_git_dir(parts[place:]) for place in range(begin, len(parts)))

    def ends_at(self, names: Sequence[str], *, is_dir: bool) -> bool:
        """Return whether a pattern outside of the directories of git means exactly this path.

        Args:
            names: The path, folded.
            is_dir: Whether it is a directory.
        """
        return any(
            (each.has_contents or not is_dir)
            and (len(each.names) == len(names) if each.is_anchored else len(each.names) <= len(names))
            and _match(each.names, names[len(names) - len(each.names) :])
            for each in self._patterns
        )

    def ends_in_git_dir(self, names: Sequence[str], *, is_dir: bool) -> bool:
        """Return whether a pattern means exactly this path.

        Args:
            names: The path within a directory of git, folded.
            is_dir: Whether it is a directory.
        """
        return any(
            (each.has_contents or not is_dir) and len(each.names) == len(names) and _match(each.names, names)
            for each in self._in_git_dir
        )

    def protects_in_git_dir(self, parts: Sequence[str]) -> bool:
        """Return whether a path within a directory of git is protected."""
        names = [fold(part) for part in parts]
        return any(self.ends_in_git_dir(names[:end], is_dir=end < len(names)) for end in range(1, len(names) + 1))


@lru_cache(maxsize=64)
def compile_patterns(patterns: tuple[str, ...]) -> ProtectedPatterns:
    """Compile patterns. Raises `ValueError` as `ProtectedPatterns`."""
    return ProtectedPatterns(patterns)


def fold(name: str) -> str:
    """Return a name in the form in which names are compared."""
    folded = name.lower() if name.isascii() else unicodedata.normalize('NFC', _IGNORABLE.sub('', name)).casefold()
    return '.git' if folded == _SHORT_NAME else folded


def is_git_name(name: str) -> bool:
    """Return whether some file system takes a name for `.git`."""
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
            f'{pattern!r} is no pattern for protected files. Write names with `/` between them, such as `.envrc`, '
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
