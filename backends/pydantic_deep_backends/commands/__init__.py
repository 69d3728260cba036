"""Execution of one command: its processes, output, deadline and cancellation.

`_execution` runs the command of any backend. `_local_process` starts those of `LocalBackend` under `_supervisor`, a
separate program.

Not here: isolation (`sandbox`).
"""
