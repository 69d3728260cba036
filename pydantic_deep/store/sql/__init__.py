"""How records lie in a SQL database: tables and migrations, rows, checksums and row counts.

Every module here is pure or yields statements: nothing opens a connection. What a store does with these rows is in
`operations`; the databases are in `sqlite`, `postgres` and `memory`.
"""
