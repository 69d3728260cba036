"""Input and output: the controlling terminal, an editor, Ctrl-C, the live progress display, standard output.

The lines and blocks that are displayed come from `render`. Approval prompts are in `approvals`.
"""
