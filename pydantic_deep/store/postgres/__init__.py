"""The engine for PostgreSQL, on `asyncpg`. Importing this package needs the extra `postgres`.

Here are connections, transactions, error translation and the advisory lock that marks an open store as alive. The SQL
of the store is in `operations`, and is the same for every engine.
"""

from ._engine import PostgresEngine

__all__ = ('PostgresEngine',)
