"""The floor of an agent made of capabilities: the bare agent with its tools and a list tool in two capabilities.

pydantic-ai processes each toolset in turn at each request. The cost of ours above this figure is our own; the cost of
this above the floor is the price of capabilities that can be removed and replaced.
"""

from __future__ import annotations

from bare import runs_on_a_dict
from bare_everything import whole_agent, whole_runs
from loop import measure_history, measure_steps
from measure import main

if __name__ == '__main__':
    main(
        {
            'step': lambda sizes: measure_steps(runs_on_a_dict(in_capabilities=True), sizes),
            'whole-step': lambda sizes: measure_steps(
                whole_runs(whole_agent(in_capabilities=True)), sizes, key='whole_step_ms'
            ),
            'history': lambda sizes: measure_history(runs_on_a_dict(in_capabilities=True), sizes),
        }
    )
