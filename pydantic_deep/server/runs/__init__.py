"""Runs: the tasks that execute them, the logs that clients read, and runs as the store has them.

A run belongs to the server, not to a request. Clients subscribe to its log, disconnect and reconnect.
Not here: who may see a run (`access`), what is checked before one starts (`_run_start`), and the routes (`routes`).
"""
