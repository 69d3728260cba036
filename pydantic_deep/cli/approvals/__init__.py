"""Deciding pending tool calls: the modes of `--approvals`, the prompt at the terminal, and editing arguments as YAML.

Turns pass their pending calls to a decider from this package. The `approvals` commands are in `commands`.
"""
