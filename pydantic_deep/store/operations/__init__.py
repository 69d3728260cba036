"""The operations of a store, as generators that yield statements and receive rows: one implementation for all engines.

They implement `SqlStore`: commits, reads, runs and approvals, deletion, garbage collection, backups and the integrity
check. The conversion of records to rows is in `sql`; an engine runs the operations on a database.
"""
