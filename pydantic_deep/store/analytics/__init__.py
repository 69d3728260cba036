"""SQL over the history of all agents of a store: a DuckDB replica that follows the store. Requires the extra `duckdb`.

This package contains the replica, the code that keeps it up to date, and the process that holds it. Importing it does
not import `duckdb`: only that process does. Importing `pydantic_deep.store` does not import this package.
"""

from ._analytics import Analytics, Export, Parameters, SupportsAnalytics, Table, export_parquet

__all__ = ('Analytics', 'Export', 'Parameters', 'SupportsAnalytics', 'Table', 'export_parquet')
