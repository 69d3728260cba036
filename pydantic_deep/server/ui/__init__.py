"""The protocols of user interfaces: AG-UI and Vercel AI.

One module per protocol parses its requests and renders a run as its events; threads and turns are shared by both.
Not here: the routes (`routes._ui`), and the page of the server itself (`static`).
"""
