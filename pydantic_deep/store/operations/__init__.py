"""What a store does, as generators that yield statements and receive rows: one implementation for every engine.

Here are the operations behind `SqlStore`: commits, reads, runs and approvals, deletion, garbage collection, backups and
the integrity check. How a record becomes a row is in `sql`; what runs an operation on a database is an engine.
"""
