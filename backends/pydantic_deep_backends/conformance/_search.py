"""Tests of globs and regular expressions."""

from __future__ import annotations

import pytest

from pydantic_deep_backends.errors import InvalidPatternError
from pydantic_deep_backends.protocol import BackendProtocol
from pydantic_deep_backends.search import GlobResult, GrepResult
from pydantic_deep_backends.search._cases import (
    GLOB_CASES,
    GLOB_FILES,
    GREP_CASES,
    GREP_FILES,
    INVALID_GLOBS,
    INVALID_REGEXES,
)

from ._base import BackendRules, Seed, glob, grep


class SearchRules(BackendRules):
    """Tests of search."""

    async def test_globs_match_the_table_of_cases(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        for path in GLOB_FILES:
            await seed(f'{root}/{path}', b'')
        found = {case: await glob(backend, case.pattern, _below(root, case.path)) for case in GLOB_CASES}
        assert found == {
            case: GlobResult(paths=tuple(sorted(_below(root, path) for path in case.expected))) for case in GLOB_CASES
        }

    async def test_regular_expressions_match_the_table_of_cases(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        for path, data in GREP_FILES.items():
            await seed(f'{root}/{path}', data)
        found = {
            case: _as_lines(await grep(backend, case.pattern, _below(root, case.path), glob=case.glob))
            for case in GREP_CASES
        }
        assert found == {
            case: sorted((_below(root, path), number, line) for path, number, line in case.expected)
            for case in GREP_CASES
        }

    @pytest.mark.parametrize('pattern', INVALID_GLOBS, ids=lambda pattern: ascii(pattern)[:30])
    async def test_malformed_glob_is_refused(
        self, backend: BackendProtocol, seed: Seed, root: str, pattern: str
    ) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(InvalidPatternError):
            await glob(backend, pattern, root)
        with pytest.raises(InvalidPatternError):
            await grep(backend, 'a', root, glob=pattern)

    @pytest.mark.parametrize('pattern', INVALID_REGEXES, ids=lambda pattern: ascii(pattern)[:30])
    async def test_malformed_regular_expression_is_refused(
        self, backend: BackendProtocol, seed: Seed, root: str, pattern: str
    ) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(InvalidPatternError):
            await grep(backend, pattern, root)

    async def test_search_in_a_missing_directory_raises(self, backend: BackendProtocol, seed: Seed, root: str) -> None:
        await seed(f'{root}/file', b'')
        with pytest.raises(FileNotFoundError):
            await glob(backend, '**', f'{root}/none')
        with pytest.raises(FileNotFoundError):
            await grep(backend, 'a', f'{root}/none')
        with pytest.raises(NotADirectoryError):
            await glob(backend, '**', f'{root}/file')

    async def test_counts_are_complete_if_lines_are_omitted(
        self, backend: BackendProtocol, seed: Seed, root: str
    ) -> None:
        for name in ('b', 'a', 'c'):
            await seed(f'{root}/{name}', b'x\n' * 4)
        result = await grep(backend, 'x', root, limit=6)
        lines = [(match.path, match.line_number) for match in result.matches]
        assert lines == [(f'{root}/a', number) for number in (1, 2, 3, 4)] + [(f'{root}/b', 1), (f'{root}/b', 2)]
        assert result.counts == {f'{root}/{name}': 4 for name in ('a', 'b', 'c')}
        assert result.truncated
        assert result.files_searched == 3


def _below(root: str, path: str) -> str:
    return root if path == '.' else f'{root}/{path}'


def _as_lines(result: GrepResult) -> list[tuple[str, int, str]]:
    """Return the lines of a result, after a check that it is complete and its counts match."""
    assert (result.problems, result.truncated) == ((), False)
    assert sum(result.counts.values()) == len(result.matches)
    return [(match.path, match.line_number, match.line) for match in result.matches]
