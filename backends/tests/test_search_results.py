"""One result for several searches of different files."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep_backends import GlobResult, GrepMatch, GrepResult, SearchProblem
from pydantic_deep_backends._search_results import joined_glob, joined_grep

COUNTS = st.dictionaries(st.text('abc', min_size=1, max_size=2).map('/'.__add__), st.integers(1, 3), max_size=6)


def result_of(counts: dict[str, int], *, limit: int) -> GrepResult:
    """Return the result of a search that finds this number of lines in each file."""
    lines = [
        GrepMatch(path=path, line_number=number + 1, line='x')
        for path in sorted(counts)
        for number in range(counts[path])
    ]
    return GrepResult(
        matches=tuple(lines[:limit]),
        counts={path: counts[path] for path in sorted(counts)},
        truncated=len(lines) > limit,
        files_searched=len(counts),
    )


@given(COUNTS, st.integers(1, 3), st.integers(1, 8))
def test_parts_searched_apart_give_the_result_of_one_search(counts: dict[str, int], parts: int, limit: int) -> None:
    paths = sorted(counts, key=lambda path: path[::-1])
    searched = [{path: counts[path] for path in paths[part::parts]} for part in range(parts)]
    joined = joined_grep([result_of(each, limit=limit) for each in searched], limit=limit)
    assert joined == result_of(counts, limit=limit)
    assert list(joined.counts) == sorted(counts)


def test_paths_and_problems_of_all_parts_are_sorted() -> None:
    problems = [SearchProblem(path=path, reason='Permission denied') for path in ('/c', '/a', '/b')]
    first = GlobResult(paths=('/m/a', '/m/z'), problems=(problems[0],))
    second = GlobResult(paths=('/b',), problems=(problems[1],))
    joined = joined_glob([first, second], [problems[2]])
    assert joined.paths == ('/b', '/m/a', '/m/z')
    assert [problem.path for problem in joined.problems] == ['/a', '/b', '/c']
