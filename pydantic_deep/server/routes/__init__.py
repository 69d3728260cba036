"""The routes, one module per resource, and the list of all routers.

A route parses parameters, checks access, and calls other modules of the server.
Not here: the bodies of requests and responses (`schemas`), and middleware (`access`, `http`).
"""
