"""Compatibility with the APIs of OpenAI, Anthropic and Google.

One module per provider parses its requests into a `Dialogue`. `_turns` runs the dialogue and returns the response in
the format of the provider.

A function that a client declares is an external tool of the run (`_client_tools`). Its call is a pending approval, whose
id is the id of the call on the wire; the client's next request contains the result, which resumes the paused version
(`_client_results`). A schema of the answer is the output type of the run, and the answer is
streamed as far as it is certain (`_written_answer`).

Defined elsewhere: the encoders of the responses (`pydantic_deep.streaming`), and the routes (`routes._compat`).
"""
