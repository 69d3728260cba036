"""Reading stored versions: which store, which version a name refers to, which versions form a turn.

The reader returns the values of `_schemas.py`. Nothing here runs an agent or prints a version; that is in `turn` and
`render`.
"""
