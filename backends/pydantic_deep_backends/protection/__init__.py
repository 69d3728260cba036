"""Protected files: files that programs of the host execute or obey. Default patterns, lookup, and changes.

An agent that may write in a directory must not decide what programs outside of it do there: `git status` runs the
program in `core.fsmonitor` of `.git/config`, `direnv` runs `.envrc`, editors and agents obey their own settings.

Not here, enforcement:

- `SandboxBackend` shows protected files read-only to commands,
- the tools of an agent ask a person before they write a protected file,
- versions report the protected files that a turn changed.
"""

from __future__ import annotations

from ._lookup import is_protected
from ._patterns import is_git_name
from ._types import (
    PROTECTED_FILES,
    ProtectedChange,
    SupportsProtection,
    check_patterns,
    compare_protected,
    protected_patterns_of,
)

__all__ = (
    'PROTECTED_FILES',
    'ProtectedChange',
    'SupportsProtection',
    'check_patterns',
    'compare_protected',
    'is_git_name',
    'is_protected',
    'protected_patterns_of',
)
