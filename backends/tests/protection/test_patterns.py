"""Patterns of protected files."""

from __future__ import annotations

from pathlib import Path

import pytest

from pydantic_deep_backends import LocalBackend, StateBackend
from pydantic_deep_backends.protection import PROTECTED_FILES, is_protected

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    'path',
    [
        '/.git',
        '/.git/config',
        '/.git/hooks/pre-commit',
        '/.git/info/attributes',
        '/.git/config.worktree',
        '/.git/commondir',
        '/.git/modules/a/b/config',
        '/.git/modules/a/hooks/post-checkout',
        '/.git/worktrees/w/config.worktree',
        '/.git/worktrees/w/gitdir',
        '/deep/in/it/.git/config',
        '/.GIT/config',
        '/.Git/HOOKS/x',
        '/.g\u200cit/config',
        '/GIT~1/config',
        '/sub/.gitattributes',
        '/.envrc',
        '/sub/.envrc',
        '/.vscode',
        '/.vscode/tasks.json',
        '/.idea/workspace.xml',
        '/.husky/_/pre-push',
        '/.pre-commit-config.yaml',
        '/AGENTS.md',
        '/sub/CLAUDE.md',
        '/.mcp.json',
        '/sub/pydantic-deep.toml',
        '/agents.md',
        '/.agents/skills/pdf/SKILL.md',
        '/bare/HEAD',
    ],
)
async def test_files_run_or_obeyed_by_host_programs_are_protected(path: str):
    """At any depth, in any case, and before they exist: `config`, `hooks/`, `info/` and similar paths in any `.git`,
    and the settings of editors, shells and agents. On every backend."""
    assert await is_protected(StateBackend(), path, PROTECTED_FILES)


@pytest.mark.parametrize(
    'path',
    [
        '/main.py',
        '/config',
        '/hooks/x',
        '/info/x',
        '/.git/index',
        '/.git/HEAD',
        '/.git/objects/ab/cdef',
        '/.git/refs/heads/config.d',
        '/.gitignore',
        '/docs/AGENTS.md.txt',
        '/agents/skills/x',
        '/vscode/x',
        '/AGENTS.md/x',
    ],
)
async def test_other_files_are_not_protected(path: str):
    assert not await is_protected(StateBackend(), path, PROTECTED_FILES)


async def test_protected_patterns_can_be_extended_and_emptied():
    patterns = (*PROTECTED_FILES, '/deploy/*.sh', 'secrets.env', 'build/out/')
    assert await is_protected(StateBackend(), '/deploy/a.sh', patterns)
    assert not await is_protected(StateBackend(), '/sub/deploy/a.sh', patterns)
    assert not await is_protected(StateBackend(), '/deploy/sub/a.sh', patterns)
    assert await is_protected(StateBackend(), '/sub/secrets.env', patterns)
    assert await is_protected(StateBackend(), '/x/build/out/deep/file', patterns)
    assert not await is_protected(StateBackend(), '/.git/config', ())
    assert not await is_protected(StateBackend(), '/HEAD', ('.envrc',))


@pytest.mark.parametrize('pattern', ['', '/', 'a//b', '../x', 'a/./b', '**/x', '$GIT_DIR', 'x/$GIT_DIR/y'])
def test_malformed_protected_pattern_is_refused(pattern: str, tmp_path: Path):
    with pytest.raises(ValueError, match='is not a pattern for protected files'):
        LocalBackend(tmp_path, protected=[pattern])
