"""Running an agent: its runtime, the conversation it continues, one turn, and the presentation of its events.

A turn emits events and prints nothing itself; `_turn_presenter.py` connects it to a terminal or to `--json`. Approval
decisions are in `approvals`, and reading stored versions is in `history`.
"""
