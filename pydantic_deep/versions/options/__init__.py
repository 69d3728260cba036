"""Options of a turn that change the run itself: the caller's tools, and the schema of the output.

All options are in `_turn_options`, and their stored form in `_run_options`.
"""
