"""What both suites share: property tests are the same in every run, and search further in a soak."""

from __future__ import annotations

import os

from hypothesis import settings

# No deadlines: a busy machine is slow, not wrong. In the suite the same examples every time, so that a failure is
# found where it was made.
settings.register_profile('suite', derandomize=True, database=None, deadline=None)
settings.register_profile('soak', max_examples=5000, database=None, deadline=None)
settings.load_profile('soak' if 'SOAK_ROUNDS' in os.environ else 'suite')
