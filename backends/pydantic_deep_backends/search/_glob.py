"""Globs: one dialect for every backend, translated into RE2, so that matching is linear in the path.

A glob is matched against the path of a file relative to the searched directory.

- `*` matches any characters but `/`, `?` one character, `[a-z]` one of a set, `[!a]` one that is not in the set.
  Matching is case-sensitive.
- `**` as a whole component matches any number of directories, including none: `src/**/*.py` finds `src/b.py`.
- `{a,b}` matches either alternative. Alternatives can be nested and can contain `/`.
- The whole relative path must match, as in the shell: `*.py` finds files of the directory itself, `**/*.py` also
  those below. A leading `/` or `./` has no effect.
- A name that begins with `.` is hidden: only a literal `.` in the glob matches it (`.github/**`, `**/.env`), and `**`
  does not enter hidden directories.

Implementation: in the text to match, a `.` at the start of a component is replaced by NUL, which no path contains. No
wildcard matches NUL, so hidden names need no look-ahead, and `{a/,}*` needs no expansion.

Not here: the walk over the files (`_walk`).
"""

from __future__ import annotations

from ._glob_syntax import Node, parse_glob, render_directories, render_files
from ._regex import Regex, compile_regex

_HIDDEN = '\0'


class Glob:
    """A compiled glob. Immutable and thread-safe."""

    def __init__(self, pattern: str) -> None:
        nodes = parse_glob(pattern)
        self._files: Regex = compile_regex(render_files(nodes), shown=pattern, within_lines=False)
        self._directories: Regex = compile_regex(render_directories(nodes), shown=pattern, within_lines=False)
        self._suffix = _recursive_suffix(nodes)
        self.pattern = pattern
        """The source of the glob."""
        self.literal_prefix: str = '/'.join(_literal_components(nodes))
        """The relative directory that contains every match, where a walk can start; `''` if there is none."""

    def matches(self, relative: str) -> bool:
        """Return whether the file with this relative path, such as `src/a.py`, matches."""
        if self._suffix is not None:
            return relative.endswith(self._suffix) and relative[:1] != '.' and '/.' not in relative
        return self._files.fullmatch(_marked(relative)) is not None

    def may_contain(self, relative_dir: str) -> bool:
        """Return whether a file below this relative directory could match; `''` is the searched directory."""
        if not relative_dir:
            return True
        return self._directories.fullmatch(_marked(relative_dir)) is not None


def compile_glob(pattern: str) -> Glob:
    """Compile a glob.

    Raises:
        InvalidPatternError: The glob is malformed or too large; the message says how to fix it.
    """
    return Glob(pattern)


def _marked(relative: str) -> bytes:
    """Return the bytes to match, with the `.` of hidden names replaced by NUL."""
    if relative[:1] == '.':
        relative = _HIDDEN + relative[1:]
    # Names that are not UTF-8 contain lone surrogates; the walk reports them.
    return relative.replace('/.', '/' + _HIDDEN).encode(errors='surrogatepass')


def _recursive_suffix(nodes: list[Node]) -> str | None:
    """Return `.py` for `**/*.py` and `''` for `**`, which need no regular expression; `None` for other globs."""
    kinds = ''.join(node.kind for node in nodes)
    if kinds == 'R':
        return ''
    if kinds.startswith('R/*') and kinds[3:] == 'c' * len(kinds[3:]):
        return ''.join(node.text for node in nodes[3:])
    return None


def _literal_components(nodes: list[Node]) -> list[str]:
    """Return the leading directories without wildcards."""
    components: list[str] = []
    current = ''
    for node in nodes:
        if node.kind == '/':
            components.append(current)
            current = ''
        elif node.kind == 'c':
            current += node.text
        else:
            break
    return components
