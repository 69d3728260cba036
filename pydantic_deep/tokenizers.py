"""Exact counts of tokens, by the tokenizers of OpenAI. This module requires the extra `tokenizers`.

The package of the extra contains the vocabularies, so nothing is downloaded. Only text is counted exactly: roles,
delimiters, images and documents are still estimated (`tokens`). For models of other vendors, which have other
tokenizers, `is_exact` is false.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

try:
    import toktok
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        'Exact counts of tokens need `toktok-rs`, which is not installed. Install the extra: '
        "`pip install 'versioned-deep-agents[tokenizers]'`.",
        name=_error.name,
    ) from _error

Encoding: TypeAlias = Literal['o200k_base', 'cl100k_base']
"""A vocabulary of OpenAI: `o200k_base` for GPT-4o and later models, `cl100k_base` for GPT-4 and GPT-3.5."""

_OPENAI: Final = re.compile(
    r'(?:[\w/.-]+:)?(?:openai/)?(?:ft:)?'
    r'(?:(?P<o200k>(?:chat)?gpt-4o|gpt-4\.[15]|gpt-5|gpt-oss|o[134])|(?P<cl100k>gpt-4|gpt-3\.?5))(?![a-z0-9])'
)
"""Names of OpenAI's models, with or without a provider, after
https://github.com/openai/tiktoken/blob/main/tiktoken/model.py."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Counts the tokens of texts: a `TokenCounter`."""

    encoding: Encoding
    """The name of the vocabulary, such as `o200k_base`."""
    is_exact: bool
    """Whether the model uses this vocabulary. Otherwise, the count is an approximation."""

    def __call__(self, text: str) -> int:
        """Return the number of tokens of a text. Markers such as `<|endoftext|>` count as text, as with a provider."""
        try:
            return toktok.batch_count([text], self.encoding, threads=1)[0]
        except UnicodeEncodeError:  # a lone surrogate, which no request can contain
            return toktok.batch_count([text.encode(errors='replace').decode()], self.encoding, threads=1)[0]


def load_tokenizer(model_name: str) -> Tokenizer:
    """Return the tokenizer of a model. For a model of another vendor, it is an approximation, with `is_exact` false.

    Args:
        model_name: The name of the model, with or without a provider: `'openai:gpt-5'`, `'gpt-4o-mini'`.
    """
    found = _OPENAI.match(model_name.lower())
    return Tokenizer(encoding='cl100k_base' if found and found['cl100k'] else 'o200k_base', is_exact=found is not None)
