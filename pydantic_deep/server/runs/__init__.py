"""Runs: the tasks that execute them, the logs that clients read, and stored runs.

A run belongs to the server, not to a request. Clients subscribe to its log, disconnect and reconnect.

Defined elsewhere: access to runs (`access`), checks before a run starts (`_run_start`), and the routes (`routes`).
"""
