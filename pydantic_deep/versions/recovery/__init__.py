"""Recovery of crashed runs: lists suspended runs, and resumes or ends them.

Not here: the stored work of a crashed run (`recording/_attempts.py`), and replays, which repeat a finished turn to
compare its requests (`comparison`).
"""
