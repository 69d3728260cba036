"""One delegation: the run of a subagent, its budget, its files and its report.

Not here: which delegations a `task` call may start (`_planner`), and where a run is in the tree (`_tree_position`).
"""
