"""A room: a history that grows too long is replaced by a summary, and can still be searched."""
