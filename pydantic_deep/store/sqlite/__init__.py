"""The engine for SQLite, on the `sqlite3` of the standard library.

It consists of connections, the threads that run operations on them, error translation and the lock file that marks an
open store as alive. `store/memory.py` runs the same threads on a database in memory. The SQL of the store is in
`operations`.
"""

from ._engine import SqliteEngine

__all__ = ('SqliteEngine',)
