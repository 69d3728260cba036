"""Search over files: one dialect of globs and of regular expressions, the same results on every backend.

```
glob_tree, grep_tree         search a `FileTree`, synchronously
grep_file                    search one file whose contents are in memory
glob_backend, grep_backend   search any backend, by `list_dir` and `read_bytes`
compile_glob                 the dialect of globs alone: does this path match?
```
`_glob` defines the dialect of globs, `_grep` that of lines and encodings. No external program is used, so an installed
ripgrep makes no difference. Results are sorted and do not depend on the order of the walk.

Not here: how composites and overlays combine the results of their parts (`composite`, `overlay`).
"""

from __future__ import annotations

from pydantic_deep_backends._search_results import (
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    MAX_LINE_CHARS,
    MAX_SECONDS,
    GlobResult,
    GrepMatch,
    GrepResult,
    SearchProblem,
)

from ._backend_search import SearchableFiles, glob_backend, grep_backend
from ._glob import Glob, compile_glob
from ._grep import count_broken_utf8, split_lines
from ._tree_search import FileTree, glob_tree, grep_file, grep_tree

__all__ = [
    'MAX_ENTRIES',
    'MAX_FILE_BYTES',
    'MAX_LINE_CHARS',
    'MAX_SECONDS',
    'FileTree',
    'Glob',
    'GlobResult',
    'GrepMatch',
    'GrepResult',
    'SearchProblem',
    'SearchableFiles',
    'compile_glob',
    'count_broken_utf8',
    'glob_backend',
    'glob_tree',
    'grep_backend',
    'grep_file',
    'grep_tree',
    'split_lines',
]
