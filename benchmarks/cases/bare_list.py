"""The floor of an agent with a todo list: the bare one, which states a list as pydantic-ai's `on_change='append'` does.

Stating one makes pydantic-ai follow the changes through the whole history at each request. What ours costs above
this is ours; what this costs above the floor is the price of a prefix that providers can keep in their cache.
"""

from __future__ import annotations

from bare import agent_on_a_dict
from loop import measure_history, measure_steps
from measure import main

if __name__ == '__main__':
    main(
        {
            'step': lambda sizes: measure_steps(agent_on_a_dict(is_stating_a_list=True), sizes),
            'history': lambda sizes: measure_history(agent_on_a_dict(is_stating_a_list=True), sizes),
        }
    )
