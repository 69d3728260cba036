"""Repositories: mutable rows of any pydantic model, in any of several engines."""

from ._copy import copy_rows
from ._protocol import Repository, SupportsTransactions, SupportsUpdates
from ._types import Change, Create, Delete, In, Page, Prefix, Range, Scalar, Upsert, Where
from .errors import (
    InvalidCursorError,
    InvalidFieldError,
    InvalidQuestionError,
    InvalidRowError,
    RepositoryClosedError,
    RepositoryError,
    RepositoryFormatError,
    RepositoryUnavailableError,
    RowExistsError,
    RowNotFoundError,
    UnknownFieldError,
    UnreadableRowError,
)
from .memory import MemoryRepository
from .sql import SqlRepository, SupportsEngine, open_repository

__all__ = (
    'Change',
    'Create',
    'Delete',
    'In',
    'InvalidCursorError',
    'InvalidFieldError',
    'InvalidQuestionError',
    'InvalidRowError',
    'MemoryRepository',
    'Page',
    'Prefix',
    'Range',
    'Repository',
    'RepositoryClosedError',
    'RepositoryError',
    'RepositoryFormatError',
    'RepositoryUnavailableError',
    'RowExistsError',
    'RowNotFoundError',
    'Scalar',
    'SqlRepository',
    'SupportsEngine',
    'SupportsTransactions',
    'SupportsUpdates',
    'UnknownFieldError',
    'UnreadableRowError',
    'Upsert',
    'Where',
    'copy_rows',
    'open_repository',
)
