"""Comparison of versions: the diff of two versions, their merge, and the replay of a turn against its recording.

Not here: recovery of crashed runs, which continues a run instead of comparing it (`recovery`).
"""
