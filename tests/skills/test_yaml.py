"""The YAML of a frontmatter: bounded, and recovered key by key."""

from __future__ import annotations

import pytest
import yaml

from pydantic_deep.skills import _yaml as bounded


class TestYaml:
    def test_scalars_keep_their_text(self) -> None:
        value = bounded.parse_yaml('a: 1.10\nb: yes\nc: "1"')
        assert value == bounded.Pairs(
            (
                (bounded.Scalar('a', 0), bounded.Scalar('1.10', 0, is_string=False)),
                (bounded.Scalar('b', 1), bounded.Scalar('yes', 1, is_string=False)),
                (bounded.Scalar('c', 2), bounded.Scalar('1', 2)),
            ),
            0,
        )

    def test_comment_only_document_is_none(self) -> None:
        assert bounded.parse_yaml('# only a comment') is None

    @pytest.mark.parametrize(
        ('text', 'line', 'reason'),
        [
            ('a: b: c', 0, 'mapping values are not allowed in this context'),
            ('a: &x 1\nb: *x', 1, 'it has an alias (`*name`), which is not supported'),
            ('a:\n  b: ' + '[' * 20 + ']' * 20, 1, 'it is nested deeper than 16 levels'),
            ('a: \x00', 0, 'control characters are not allowed'),
        ],
    )
    def test_unusable_yaml_error_has_reason_and_line(self, text: str, line: int, reason: str) -> None:
        with pytest.raises(bounded.UnusableYamlError) as caught:
            bounded.parse_yaml(text)
        assert (caught.value.line, str(caught.value)) == (line, reason)

    def test_pure_python_loader_is_used_without_the_c_loader(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delattr(yaml, 'CSafeLoader')
        bounded.yaml_library.cache_clear()
        try:
            assert bounded.yaml_library()[1] is yaml.SafeLoader
            assert bounded.parse_yaml('a: b') is not None
            with pytest.raises(bounded.UnusableYamlError, match='special characters are not allowed'):
                bounded.parse_yaml('a: \x00')
        finally:
            bounded.yaml_library.cache_clear()

    def test_keys_are_recovered_one_by_one(self) -> None:
        text = (
            'name: pdf\ndescription: Use: this\n  and that\n"license": MIT\n'
            'metadata:\n  a: {b: [c]}\ntags: [open\nnotes: |\n  one\n  two: *x\n\ttab\nlast: >-\n  three\n\tfour\n'
        )
        found = {key.text: (value, key.line) for key, value in bounded.recover_pairs(text).pairs}
        assert found['name'] == (bounded.Scalar('pdf', 0), 0)
        assert found['description'] == (bounded.Scalar('Use: this and that', 1), 1)
        assert found['license'] == (bounded.Scalar('MIT', 3), 3)
        inner = bounded.Items((bounded.Scalar('c', 5),), 5)
        pairs = bounded.Pairs(((bounded.Scalar('b', 5), inner),), 5)
        assert found['metadata'] == (bounded.Pairs(((bounded.Scalar('a', 5), pairs),), 5), 4)
        assert found['tags'] == (bounded.Scalar('[open', 6), 6)
        assert found['notes'] == (bounded.Scalar('one\ntwo: *x\ntab', 7), 7)
        assert found['last'] == (bounded.Scalar('three four', 11), 11)
