"""The files that versions omit: `.git`, under any name that a file system may equate with it, and files ignored by
`.gitignore`, as in git. Backends of directories add databases that programs have open (`IN_USE_SUFFIX`), such as stores.

The rules of a directory are its own file and those of its ancestors, the nearest first; within a file, the last
matching pattern decides. An ignored directory is never entered, so nothing below it can be included again. `pathspec`
translates the patterns, which are matched against one name at a time (gitignore(5)): the caller that walks the tree
decides for whole paths.
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
"""The group of a `pathspec` pattern that matches if the pattern matched a directory above the path."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pattern:
    """A line of a `.gitignore`."""

    regex: re.Pattern[str]
    is_for_directories: bool
    leaves_out: bool
    """False for a line that begins with `!`, which includes files again."""

    def matches(self, path: str, *, is_dir: bool) -> bool:
        """Return whether the pattern matches this file or directory itself, and not only a directory above it."""
        if self.is_for_directories and not is_dir:
            return False
        match = self.regex.match(path)
        return match is not None and match.groupdict().get(_BELOW_DIRECTORY) is None


@dataclass(frozen=True, kw_only=True, slots=True)
class _IgnoreFile:
    """The patterns of a `.gitignore`, last line first."""

    patterns: Sequence[_Pattern]
    prefix: str = ''
    """The path from its directory to the one that the rules apply to, with a trailing `/`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class GitignoreRules:
    """The files of one directory that versions omit: `.git`, and those that `.gitignore` files ignore.

    `GitignoreRules()` are the `DirectoryRules` of the root of the files, before its own `.gitignore` is read.
    """

    _files: tuple[_IgnoreFile, ...] = ()
    """The `.gitignore` files that apply to it, the nearest first."""

    def with_ignore_file(self, data: bytes) -> DirectoryRules:
        """Return the rules with the directory's own `.gitignore` added."""
        patterns = _parse(data)
        return GitignoreRules(_files=(_IgnoreFile(patterns=patterns), *self._files)) if patterns else self

    def below(self, name: str) -> DirectoryRules:
        """Return the rules of a subdirectory."""
        if not self._files:
            return self
        return GitignoreRules(
            _files=tuple(_IgnoreFile(patterns=file.patterns, prefix=f'{file.prefix}{name}/') for file in self._files)
        )

    def leaves_out(self, name: str, *, is_dir: bool) -> bool:
        """Return whether an entry of this directory is ignored."""
        if is_git_name(name):
            return True
        for file in self._files:
            path = f'{file.prefix}{name}'
            for pattern in file.patterns:
                if pattern.matches(path, is_dir=is_dir):
                    return pattern.leaves_out
        return False


async def left_out_by(tree: Tree, read: Callable[[str], Awaitable[bytes]], paths: Iterable[str]) -> set[str]:
    """Return the files that the `.gitignore` files of a tree ignore.

    Args:
        tree: The tree with the rules.
        read: Returns the contents of one of its `.gitignore` files.
        paths: The files to check, which need not be in the tree.
    """
    root: DirectoryRules = GitignoreRules()
    rules_by_directory: dict[str, DirectoryRules | None] = {}
    ignored: set[str] = set()
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
            ignored.add(path)
    return ignored


def _parse(data: bytes) -> tuple[_Pattern, ...]:
    """Return the patterns of a `.gitignore`, last line first. As in git, invalid lines are skipped."""
    from pathspec import GitIgnoreSpec  # not at the top: most directories have no such file

    parsed: list[_Pattern] = []
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
            # `pathspec` does not type the pattern.
            regex = cast('re.Pattern[str] | None', pattern.regex)  # pyright: ignore[reportUnknownMemberType]
            if pattern.include is not None and regex is not None:
                parsed.append(_Pattern(regex=regex, is_for_directories=is_for_directories, leaves_out=pattern.include))
    return tuple(reversed(parsed))
