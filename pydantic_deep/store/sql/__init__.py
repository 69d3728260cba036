"""The representation of records in a SQL database: tables and migrations, rows, checksums and row counts.

Every module here is pure or yields statements: nothing opens a connection. The operations of a store on these rows are
in `operations`; the databases are in `sqlite`, `postgres` and `memory`.
"""
