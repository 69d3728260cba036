"""Cases from stored turns, and evaluations of agents over them with pydantic-evals. It needs the extra `evals`.

`record_case` turns a stored turn into a case, a folder with the files before the turn and the expected result.
`load_cases` returns such folders as a dataset of pydantic-evals, `run_case` runs them with an agent, `replay_case` with
the recorded responses, and `compare` shows several agents side by side. Nothing here reads or writes the directory that
the turn worked in, or the store of the agent.
"""

import importlib

try:
    importlib.import_module('pydantic_evals')
except ModuleNotFoundError as _error:
    raise ModuleNotFoundError(
        "Evaluations need 'pydantic_evals', which is not installed. Install the extra: "
        "`pip install 'versioned-deep-agents[evals]'`.",
        name=_error.name,
    ) from _error

from ._case import AskedCall, TurnCase, TurnResult, TurnUsage, read_case, read_cases, write_case
from ._comparison import RECORDED, CaseDataset, CaseScore, Comparison, compare, load_cases
from ._evaluators import (
    ApprovalsAsked,
    FilesContain,
    FilesEqual,
    FilesUnchanged,
    ReplaysExactly,
    TodosCompleted,
    UsageAtMost,
)
from ._record import record_case
from ._run import CaseTask, replay_case, run_case
from .errors import CaseError, CaseFormatError, SecretsFoundError

__all__ = (
    'RECORDED',
    'ApprovalsAsked',
    'AskedCall',
    'CaseDataset',
    'CaseError',
    'CaseFormatError',
    'CaseScore',
    'CaseTask',
    'Comparison',
    'FilesContain',
    'FilesEqual',
    'FilesUnchanged',
    'ReplaysExactly',
    'SecretsFoundError',
    'TodosCompleted',
    'TurnCase',
    'TurnResult',
    'TurnUsage',
    'UsageAtMost',
    'compare',
    'load_cases',
    'read_case',
    'read_cases',
    'record_case',
    'replay_case',
    'run_case',
    'write_case',
)
