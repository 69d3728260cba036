"""Reading stored versions: choosing the store, resolving revisions, and selecting versions to list.

The reader selects versions and loads them with `views`. Nothing here runs an agent or prints a version; that is in
`turn` and `render`.
"""
