"""The routes, one module per resource, and the list of all routers.

A route parses parameters, checks access, and calls other modules of the server.

Defined elsewhere: request and response bodies (`schemas`), and middleware (`access`, `http`).
"""
