"""Execution of one command: its processes, output, deadline and cancellation.

`_execution` runs any command that a backend starts; `_local_process` starts those of `LocalBackend`, which
`_supervisor` runs as a program of its own.

Not here: isolation (`sandbox`).
"""
