"""A room: what a run, a conversation and a subagent may use, a warning before the end, and a clean stop."""
