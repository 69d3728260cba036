"""Tools that read, search and change the files of a backend, for any pydantic-ai agent."""

from pydantic_deep._messages.result_metadata import exit_code_of

from ._capability import Filesystem
from ._types import AnyBackend, BackendSource, OutputMode, UploadLike

__all__ = ('AnyBackend', 'BackendSource', 'Filesystem', 'OutputMode', 'UploadLike', 'exit_code_of')
