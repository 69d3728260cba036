"""Compatibility with the APIs of OpenAI, Anthropic and Google.

One module per provider parses its requests into a `Dialogue`. `_turns` runs the dialogue and returns the response in
the format of the provider.

Defined elsewhere: the encoders of the responses (`pydantic_deep.streaming`), and the routes (`routes._compat`).
"""
