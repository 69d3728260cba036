"""Compatibility with the APIs of OpenAI, Anthropic and Google.

One module per provider parses its requests into a `Dialogue`; `_turns` runs it and returns the answer in the format of
the provider.
Not here: the encoders of the answers (`pydantic_deep.streaming`) and the routes (`routes._compat`).
"""
