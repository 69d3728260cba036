"""The encoders and decoders of all providers implement the protocols."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pydantic_deep.streaming import (
    AnswerEncoder,
    AnthropicDecoder,
    AnthropicEncoder,
    Decoder,
    Encoder,
    GoogleDecoder,
    GoogleEncoder,
    OpenaiDecoder,
    OpenaiEncoder,
    SupportsCallRemoval,
)


@pytest.mark.parametrize('make', [OpenaiEncoder, AnthropicEncoder, GoogleEncoder])
def test_encoders_implement_the_protocol(make: Callable[..., AnswerEncoder]) -> None:
    """004-29: a new format implements the same protocol."""
    assert isinstance(make(), Encoder)


@pytest.mark.parametrize('make', [OpenaiDecoder, AnthropicDecoder, GoogleDecoder])
def test_decoders_implement_the_protocols(make: Callable[[], Decoder]) -> None:
    assert isinstance(make(), Decoder)
    assert isinstance(make(), SupportsCallRemoval)
