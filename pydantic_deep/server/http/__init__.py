"""What every route needs of HTTP: errors in the format of each API, security headers, limits of bodies, strict JSON.

Nothing here knows conversations, runs or the state of the server.
"""
