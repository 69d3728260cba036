"""Exact counts of tokens, by the tokenizers of OpenAI. They need the extra `tokenizers`, and no network.

The vocabularies come with the package, so nothing is downloaded, ever. What a tokenizer counts is text: what a provider
adds for roles and marks, and what images and documents take, stays an estimate (`tokens`). Models of other vendors have
tokenizers of their own: of them, `is_exact` is false.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

try:
    import toktok
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        'Exact counts of tokens need `toktok-rs`, which is not installed. Install the extra: '
        "`pip install 'pydantic-deep[tokenizers]'`.",
        name=error.name,
    ) from error

Encoding: TypeAlias = Literal['o200k_base', 'cl100k_base']
"""A vocabulary of OpenAI: `o200k_base` of GPT-4o and all later models, `cl100k_base` of GPT-4 and GPT-3.5."""

_OPENAI: Final = re.compile(
    r'(?:[\w/.-]+:)?(?:openai/)?(?:ft:)?'
    r'(?:(?P<o200k>(?:chat)?gpt-4o|gpt-4\.[15]|gpt-5|gpt-oss|o[134])|(?P<cl100k>gpt-4|gpt-3\.?5))(?![a-z0-9])'
)
"""Names of OpenAI's models, as in https://github.com/openai/tiktoken/blob/main/tiktoken/model.py, behind a provider."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """Counts the tokens of texts: a `TokenCounter`."""

    encoding: Encoding
    """The vocabulary that it counts with."""
    is_exact: bool
    """Whether it is that of the model; for any other model the count is an approximation: it parts text otherwise."""

    def __call__(self, text: str) -> int:
        """Return how many tokens a text takes; marks like `<|endoftext|>` are text, as they are for a provider."""
        try:
            return toktok.batch_count([text], self.encoding, threads=1)[0]
        except UnicodeEncodeError:  # half a character, which no request can hold
            return toktok.batch_count([text.encode(errors='replace').decode()], self.encoding, threads=1)[0]


def load_tokenizer(model_name: str) -> Tokenizer:
    """Return the tokenizer of a model; of a model that is none of OpenAI's, the nearest there is, which says so.

    Args:
        model_name: A name as pydantic-ai has it, with or without a provider: `'openai:gpt-5'`, `'gpt-4o-mini'`.
    """
    found = _OPENAI.match(model_name.lower())
    return Tokenizer(encoding='cl100k_base' if found and found['cl100k'] else 'o200k_base', is_exact=found is not None)
