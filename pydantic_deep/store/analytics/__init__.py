"""SQL over the history of every agent of a store: a DuckDB replica that follows the store. Needs the extra `duckdb`.

Here are the replica, what keeps it up to date, and the process that holds it. Importing this package does not import
`duckdb`: only that process does. Importing `pydantic_deep.store` does not import this package.
"""

from ._analytics import Analytics, Export, Parameters, SupportsAnalytics, Table, export_parquet

__all__ = ('Analytics', 'Export', 'Parameters', 'SupportsAnalytics', 'Table', 'export_parquet')
