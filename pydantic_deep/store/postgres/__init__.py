"""The engine for PostgreSQL, on `asyncpg`. Importing this package requires the extra `postgres`.

It consists of connections, transactions, error translation and the advisory lock that marks an open store as alive. The
SQL of the store is in `operations`, and is the same for every engine.
"""

from ._engine import PostgresEngine

__all__ = ('PostgresEngine',)
