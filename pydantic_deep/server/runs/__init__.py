"""Runs: the tasks that execute them, the logs that clients read, and stored runs.

A run belongs to the server, not to a request. Clients subscribe to its log, disconnect and reconnect.

`_pool` starts the runs of this process, each a `_server_run` with its `_run_log`; `_log_cache` keeps logs of ended runs.
`_stored_runs` reads runs from the store, and `_stored_run_events` rebuilds their events.

Defined elsewhere: access to runs (`access`), checks before a run starts (`_run_start`), and the routes (`routes`).
"""
