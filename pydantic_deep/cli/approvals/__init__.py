"""Deciding pending tool calls: the modes of `--approvals`, the prompt at the terminal, and editing arguments as YAML.

Turns and commands call these with calls that are pending. The `approvals` commands are in `commands`.
"""
