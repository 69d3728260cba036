"""What both suites share: property tests are the same in every run, and search further in a soak.

What is imported stays: until all tests are collected no garbage is looked for, and none is looked for there afterwards.
"""

from __future__ import annotations

import gc
import os

from hypothesis import HealthCheck, settings

gc.disable()

# No limits of time: a busy machine is slow, not wrong. In the suite the same examples every time, so that a failure is
# found where it was made.
unhurried = settings(database=None, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile('suite', unhurried, derandomize=True)
settings.register_profile('soak', unhurried, max_examples=5000)
settings.load_profile('soak' if 'SOAK_ROUNDS' in os.environ else 'suite')


def pytest_collection_finish() -> None:
    """Look for garbage from here on, and only in what the tests make."""
    gc.freeze()
    gc.enable()
