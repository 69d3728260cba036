"""The commands of `pydantic-deep`: one module for each group, with its options, help texts and exit codes.

A command parses its options, calls `turn` or `history`, and prints. The loop of `chat` and the options that commands
share are here too. How values look on a terminal is in `render`.
"""
