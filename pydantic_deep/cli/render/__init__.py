"""Terminal text: functions that convert events, versions and query results to Rich texts and wrap them to a width.

Most functions are pure; those that print take the console. The live display is in `terminal`, and the JSON documents
are in `_schemas.py`.
"""
