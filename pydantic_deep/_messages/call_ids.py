"""Ids of tool calls in the tree of delegations, where slashes separate the ids of nested calls."""

from __future__ import annotations


def escape_call_id(tool_call_id: str) -> str:
    """Return a call id for a place in a nested id: a slash becomes `%2F`, and a percent sign `%25`."""
    return tool_call_id.replace('%', '%25').replace('/', '%2F')


def unescape_call_id(escaped: str) -> str:
    """Return the call id that `escape_call_id` escaped."""
    return escaped.replace('%2F', '/').replace('%25', '%')


def nested_call_id(*ids: str) -> str:
    """Return the id of a nested call: the ids of the delegations that lead to it and its own, joined by slashes."""
    return '/'.join(map(escape_call_id, ids))
