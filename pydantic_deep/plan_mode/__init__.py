"""Plan mode: the agent changes nothing until a person has accepted its plan.

`_capability.py` refuses calls that may change something, `_history.py` reads the mode and the plan from the messages.
Nothing else stores them, so they belong to a version like the dialogue does.
"""

from ._capability import PlanMode, has_plan_mode
from ._history import accepted_plan, is_planning, with_plan_mode

__all__ = ('PlanMode', 'accepted_plan', 'has_plan_mode', 'is_planning', 'with_plan_mode')
