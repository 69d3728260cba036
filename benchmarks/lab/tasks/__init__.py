"""The lab's own tasks: a prompt, the files at the start, and a verifier for the files at the end."""

from ._task import REQUEST_LIMIT, Changes, Files, Task, apply_changes
from .approvals import TASKS as APPROVALS
from .delegation import TASKS as DELEGATION
from .edits import TASKS as EDITS
from .long_results import TASKS as LONG_RESULTS
from .many_files import TASKS as MANY_FILES
from .searches import TASKS as SEARCHES
from .skills import TASKS as SKILLS
from .tables import TASKS as TABLES

__all__ = ('REQUEST_LIMIT', 'TASKS', 'Changes', 'Files', 'Task', 'apply_changes')

TASKS: tuple[Task, ...] = (
    *EDITS,
    *SEARCHES,
    *MANY_FILES,
    *TABLES,
    *DELEGATION,
    *SKILLS,
    *LONG_RESULTS,
    *APPROVALS,
)
"""All of them, in the order in which they run."""
