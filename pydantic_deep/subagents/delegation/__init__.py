"""One delegation: the run of a subagent, its budget, its files and its report.

`_planner` decides which delegations a `task` call may start; `_tree_position` describes where a run is in the tree.
"""
