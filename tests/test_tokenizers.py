"""Exact token counts by the tokenizers of OpenAI."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

from pydantic_deep import tokenizers
from pydantic_deep.tokenizers import Encoding, load_tokenizer
from pydantic_deep.tokens import TokenCounter, count_tokens_approximately


@pytest.mark.parametrize(
    ('text', 'o200k', 'cl100k'),
    [  # as tiktoken 0.14.0 counts them
        ('', 0, 0),
        ('hello world', 2, 2),
        ('How many tokens is this?', 6, 6),
        ('def f(x):\n    return x ** 2\n', 11, 11),
        ('naïve café, größer', 6, 7),
        ('你好，世界！今天天气很好。', 9, 16),
        ('안녕하세요', 2, 5),
        ('مرحبا بالعالم', 4, 10),
        ('👩\u200d👩\u200d👧\u200d👦🇩🇪', 15, 24),
        ('<|endoftext|>', 7, 7),
        ('1234567890.5', 6, 6),
        ('a' * 1_000, 125, 125),
        (' ' * 100 + '\n\n\t', 4, 4),
        ('{"path":"/src/app.py","offset":120}', 12, 11),
        ("I'm sure they'LL'VE", 7, 8),
    ],
)
def test_counts_equal_those_of_tiktoken(text: str, o200k: int, cl100k: int) -> None:
    assert load_tokenizer('gpt-5')(text) == o200k
    assert load_tokenizer('gpt-4')(text) == cl100k


def test_lone_surrogate_is_counted_as_its_replacement() -> None:
    assert load_tokenizer('gpt-5')('a\ud800b') == load_tokenizer('gpt-5')('a?b')


@pytest.mark.parametrize(
    ('model', 'encoding', 'is_exact'),
    [
        ('openai:gpt-5', 'o200k_base', True),
        ('openai-responses:gpt-5.2-mini', 'o200k_base', True),
        ('gpt-4o-mini', 'o200k_base', True),
        ('GPT-4.1', 'o200k_base', True),
        ('gateway/openai:o3', 'o200k_base', True),
        ('openrouter:openai/gpt-4o', 'o200k_base', True),
        ('openai:ft:gpt-4o-mini:org::id', 'o200k_base', True),
        ('ollama:gpt-oss:20b', 'o200k_base', True),
        ('chatgpt-4o-latest', 'o200k_base', True),
        ('azure:gpt-35-turbo', 'cl100k_base', True),
        ('openai:gpt-4', 'cl100k_base', True),
        ('gpt-4-turbo', 'cl100k_base', True),
        ('gpt-3.5-turbo', 'cl100k_base', True),
        ('anthropic:claude-opus-5-5', 'o200k_base', False),
        ('google:gemini-3-pro', 'o200k_base', False),
        ('openrouter:other/gpt-4o', 'o200k_base', False),
        ('gpt-9', 'o200k_base', False),
        ('o3000', 'o200k_base', False),
        ('test', 'o200k_base', False),
    ],
)
def test_tokenizer_states_whether_it_is_exact_for_the_model(model: str, encoding: Encoding, is_exact: bool) -> None:
    tokenizer = load_tokenizer(model)

    assert (tokenizer.encoding, tokenizer.is_exact) == (encoding, is_exact)


def test_tokenizer_counts_differ_from_the_approximation() -> None:
    counters: list[TokenCounter] = [count_tokens_approximately, load_tokenizer('gpt-5')]

    assert [counter('antidisestablishmentarianism') for counter in counters] == [7, 6]


def test_missing_extra_is_named_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'toktok', None)

    with pytest.raises(ModuleNotFoundError, match=r"pip install 'versioned-deep-agents\[tokenizers\]'"):
        importlib.reload(tokenizers)


@pytest.mark.slow
def test_counting_opens_no_connection_and_no_vocabulary_file() -> None:
    program = """
import sys
def watch(event, args):
    if event.startswith('socket.') or (event == 'open' and 'vocab' in str(args[0])):
        raise SystemExit(f'{event} {args}')
from pydantic_deep.tokenizers import load_tokenizer
sys.addaudithook(watch)
print(load_tokenizer('gpt-5')('hello world'))
"""
    done = subprocess.run([sys.executable, '-c', program], capture_output=True, encoding='utf-8', check=False)

    assert (done.stdout, done.stderr) == ('2\n', '')
