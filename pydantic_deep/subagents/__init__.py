"""Subagents: `task` hands a piece of work to an agent with a history of its own."""
