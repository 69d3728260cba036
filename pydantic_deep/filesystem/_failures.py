"""Convert file errors into results for the model: one sentence, without a traceback or a host path."""

from __future__ import annotations

import errno
from collections.abc import Generator
from contextlib import contextmanager

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep_backends.errors import BackendError, InvalidPathError, InvalidPatternError
from pydantic_deep_backends.paths import display_path


@contextmanager
def tool_failures(path: str) -> Generator[None]:
    """Convert exceptions of a backend for `path` into `ModelRetry` if other arguments can help, otherwise `ToolFailed`."""
    shown = display_path(path)
    try:
        yield
    except (InvalidPathError, InvalidPatternError) as error:
        raise ModelRetry(str(error)) from error
    except (BackendError, WorkspaceError) as error:
        raise ToolFailed(str(error)) from error
    except FileNotFoundError as error:
        raise ToolFailed(f'{shown} does not exist. Use ls or glob to find it.') from error
    except IsADirectoryError as error:
        raise ModelRetry(f'{shown} is a directory. Use ls, or name a file.') from error
    except NotADirectoryError as error:
        raise ModelRetry(f'{shown}: it, or a parent of it, is a file and not a directory.') from error
    except PermissionError as error:
        raise ToolFailed(f'{shown}: permission denied.') from error
    except OSError as error:
        if error.errno == errno.E2BIG:
            raise ModelRetry(f'{shown} is longer than the system accepts. Write it to a file, and run that.') from error
        raise ToolFailed(f'{shown}: {_reason(error)}.') from error


def _reason(error: OSError) -> str:
    """Return the reason of an error. For system errors, omit the rest of the text, which contains a host path."""
    return error.strerror or str(error) or type(error).__name__
