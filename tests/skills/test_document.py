"""Any bytes are a skill or an error."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from pydantic_deep.skills._document import DocumentError, find_header, parse_document
from pydantic_deep.skills._rules import Report
from pydantic_deep.skills._scan import parse_whole


@given(st.one_of(st.binary(max_size=400), st.binary(max_size=200).map(lambda data: b'---\n' + data + b'\n---\n')))
def test_any_bytes_give_a_skill_or_an_error(data: bytes) -> None:
    report = Report(path='SKILL.md')
    skill = parse_whole(data, 'folder', report)
    assert (skill is None) == any(d.severity == 'error' for d in report.diagnostics)


@given(st.binary(max_size=300), st.binary(max_size=100), st.sampled_from([b'\n', b'\r\n']))
def test_find_header_agrees_with_parse_document(header: bytes, body: bytes, end: bytes) -> None:
    data = end.join([b'---', header, b'---', body])
    quick = find_header(data)
    with suppress(DocumentError):  # of an undecodable body
        assert quick in (None, parse_document(data).header)
