"""Recovery of crashed runs: which runs are suspended, and how they are resumed or ended.

Not here: what a crashed process stored (`recording/_attempts.py`), and replays, which repeat a finished turn to compare
its requests (`comparison`).
"""
