"""The command `pydantic-deep`. `main` imports everything else when it is called.

Typer, Rich and prompt-toolkit are the extra `cli`. Nothing else of the framework imports this package.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic_ai.models import Model

__all__ = ('main',)

_GC_THRESHOLD = 20_000
"""How many more objects than before start a garbage collection. Python's default is 700 to 2,000.

A server with 500 turns has so many objects that it needs a third less CPU with this number than with 700.
"""


def main(argv: Sequence[str] | None = None, *, models: Mapping[str, Model] | None = None) -> int:
    """Run the command line and return its exit code.

    A program that has models of its own can offer them by name:

    ```python
    from pydantic_ai.models.test import TestModel

    from pydantic_deep.cli import main

    house = TestModel(call_tools=[], custom_output_text='Hello.')
    code = main(['run', 'Greet me', '--model', 'house'], models={'house': house})
    print(f'exit code {code}')
    #> exit code 0
    ```

    Args:
        argv: The command line arguments without the program name. Default: those of this process.
        models: Models that `--model` accepts in addition to those of pydantic-ai, by name.

    Returns:
        0 success, 1 the run failed, 2 wrong usage, 3 no usable model, 4 the budget is used up, 5 paused for
        approvals, 6 suspended, 130 interrupted.
    """
    if argv is None:  # the process is only for this command
        gc.disable()
    try:
        from ._app import run_app
    except ModuleNotFoundError as error:
        if error.name not in ('typer', 'rich', 'prompt_toolkit'):
            raise
        print(  # noqa: T201
            f"The command line needs {error.name!r}, which is not installed. Install the extra: pip install 'versioned-deep-agents[cli]'",
            file=sys.stderr,
        )
        return 2
    except KeyboardInterrupt:  # importing takes long enough for a person to change their mind
        return 130
    if argv is None:
        gc.freeze()  # imported modules are never garbage; searching them takes a quarter of the CPU of a short command
        gc.set_threshold(_GC_THRESHOLD)
        gc.enable()
    return run_app(sys.argv[1:] if argv is None else argv, models or {})
