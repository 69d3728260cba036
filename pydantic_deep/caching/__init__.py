"""A room: says when a request breaks the prefix that a provider has cached, and why."""
