"""The HTTP basics of all routes: errors in the format of each API, security headers, body limits, strict JSON.

Nothing here depends on conversations, runs or the state of the server.
"""
