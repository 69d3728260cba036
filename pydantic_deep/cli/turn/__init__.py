"""Everything that runs an agent: its runtime, the conversation it continues, one turn, and who is shown its events.

A turn emits the events of `_events.py` and prints nothing itself; `_turn_presenter.py` connects it to a terminal or to
`--json`. Approval decisions are in `approvals`, and reading stored versions is in `history`.
"""
