"""Approvals: a person decides before a tool runs."""
