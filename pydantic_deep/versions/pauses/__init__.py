"""Paused runs: their pending approvals, which are stored, listed in an inbox, and answered once each.

Not here: the rules for approvals (`pydantic_deep.approvals`), and how a turn resumes (`_turn`).
"""
