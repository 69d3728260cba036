"""Reading stored versions: which store, which version a name refers to, which versions form a turn.

The reader selects versions and loads them with `views`. Nothing here runs an agent or prints a version; that is in `turn` and
`render`.
"""
