"""Paused runs: how their pending approvals are stored, listed in an inbox, and answered once each.

Not here: which calls need an approval (`pydantic_deep.approvals`), and how a turn resumes (`_session`).
"""
