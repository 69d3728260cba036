"""Recovery of crashed runs: which runs are suspended, what their processes stored, and how they are resumed or ended.

Model responses of a recovered run come from its recording (`RecoveryScript`), tool results from the ledger.

Not here: replays, which repeat a finished turn to compare its requests (`comparison`).
"""
