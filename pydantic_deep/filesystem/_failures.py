"""How a failure of a path becomes a result that the model can act on: one sentence, no traceback, no host path."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.workspaces import WorkspaceError

from pydantic_deep_backends.errors import BackendError, InvalidPathError, InvalidPatternError
from pydantic_deep_backends.paths import display_path


@contextmanager
def tool_failures(path: str) -> Generator[None]:
    """Turn what a backend raises for `path` into `ModelRetry` where other arguments can help, else `ToolFailed`."""
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
        raise ToolFailed(f'{shown}: {_reason(error)}.') from error


def _reason(error: OSError) -> str:
    """Return the reason; where the system gave one, without the path of a machine that the text of the error holds."""
    return error.strerror or str(error) or type(error).__name__
