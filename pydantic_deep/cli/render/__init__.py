"""Terminal text: functions that turn events, versions and query results into Rich texts and wrap them to a width.

Almost everything is pure; the few functions that print take the console. The live display is in `terminal`, JSON
output in `_events.py` and `_schemas.py`.
"""
