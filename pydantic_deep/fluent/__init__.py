"""Conversations as one writes them: `prompt(agent).user(…).start()`."""
