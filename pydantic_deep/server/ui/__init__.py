"""The protocols of user interfaces: AG-UI and Vercel AI.

One module per protocol parses its requests and renders runs as its events. Both share threads and turns.

Defined elsewhere: the routes (`routes._ui`), and the web page of the server (`static`).
"""
