"""What versions leave out: `.git`, under any name that some file system takes for it, and what the `.gitignore` files of a directory name, as git does it.

The rules of one directory are its own file and those of the directories above, the nearest first; in one file the last
pattern that matches decides. A directory that is left out is never entered, so nothing below it can be taken back in.
Patterns are translated by `pathspec`, one name at a time (gitignore(5)): what a whole path matches is decided by who
walks there.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from pydantic_deep_backends import Tree
from pydantic_deep_backends.paths import path_parts
from pydantic_deep_backends.protection import is_git_name
from pydantic_deep_backends.tracking import IGNORE_FILE, DirectoryRules

_BELOW_DIRECTORY = 'ps_d'
"""The group of a pattern of `pathspec` that takes part where the pattern matched a directory above."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pattern:
    """One line of a `.gitignore`."""

    regex: re.Pattern[str]
    is_for_directories: bool
    leaves_out: bool
    """False for a line that begins with `!`."""

    def matches(self, path: str, *, is_dir: bool) -> bool:
        """Return whether it names this file or directory itself, and not only a directory above."""
        if self.is_for_directories and not is_dir:
            return False
        found = self.regex.match(path)
        return found is not None and found.groupdict().get(_BELOW_DIRECTORY) is None


@dataclass(frozen=True, kw_only=True, slots=True)
class _IgnoreFile:
    """The patterns of one `.gitignore`, the last one first."""

    patterns: Sequence[_Pattern]
    prefix: str = ''
    """The way from its directory to the one that the rules are of, with a `/` at its end."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GitRules:
    """What one directory leaves out."""

    files: tuple[_IgnoreFile, ...] = ()
    """Those that speak of it, the nearest first."""

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        """Return the rules with the `.gitignore` of the directory itself."""
        patterns = _parse(data)
        return GitRules(files=(_IgnoreFile(patterns=patterns), *self.files)) if patterns else self

    def below(self, name: str) -> DirectoryRules:
        """Return the rules of a directory in this one."""
        if not self.files:
            return self
        return GitRules(
            files=tuple(_IgnoreFile(patterns=file.patterns, prefix=f'{file.prefix}{name}/') for file in self.files)
        )

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        """Return whether something in this directory is left out."""
        if is_git_name(name):
            return True
        for file in self.files:
            path = f'{file.prefix}{name}'
            for pattern in file.patterns:
                if pattern.matches(path, is_dir=is_dir):
                    return pattern.leaves_out
        return False


async def left_out_by(tree: Tree, read: Callable[[str], Awaitable[bytes]], paths: Iterable[str]) -> set[str]:
    """Return which files the `.gitignore` files of a tree would leave out.

    Args:
        tree: Whose rules count.
        read: Returns the contents of one of its `.gitignore` files.
        paths: The files, whether or not the tree has them.
    """
    root: DirectoryRules = GitRules()
    rules_by_directory: dict[str, DirectoryRules | None] = {}
    found: set[str] = set()
    for path in paths:
        *above, name = path_parts(path)
        rules: DirectoryRules | None = root
        directory = ''
        for part in ('', *above):
            directory = f'{directory}/{part}' if part else directory
            if directory not in rules_by_directory:
                if part:
                    rules = None if rules is None or rules.leaves_out(part, is_dir=True) else rules.below(part)
                if rules is not None and f'{directory}/{IGNORE_FILE}' in tree:
                    rules = rules.with_ignore_file(await read(f'{directory}/{IGNORE_FILE}'))
                rules_by_directory[directory] = rules
            rules = rules_by_directory[directory]
        if rules is None or rules.leaves_out(name, is_dir=False):
            found.add(path)
    return found


def _parse(data: bytes) -> tuple[_Pattern, ...]:
    """Return the patterns of a `.gitignore`, the last one first; a line that is none is passed over, as by git."""
    from pathspec import GitIgnoreSpec  # not at the top: most directories have no such file

    found: list[_Pattern] = []
    for line in data.removeprefix(b'\xef\xbb\xbf').decode(errors='surrogateescape').split('\n'):
        text = line.removesuffix('\r')
        stripped = text.rstrip(' ')
        text = text if stripped.endswith('\\') else stripped
        is_for_directories = text.endswith('/') and text.strip('!/') != ''
        try:
            patterns = GitIgnoreSpec.from_lines([text.removesuffix('/') if is_for_directories else text]).patterns
        except ValueError:
            continue
        for pattern in patterns:
            # `pathspec` does not say of what its patterns are.
            regex = cast('re.Pattern[str] | None', pattern.regex)  # pyright: ignore[reportUnknownMemberType]
            if pattern.include is not None and regex is not None:
                found.append(_Pattern(regex=regex, is_for_directories=is_for_directories, leaves_out=pattern.include))
    return tuple(reversed(found))
