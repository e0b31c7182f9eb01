"""For all tests: property tests take the same examples every time, so that a red run can be repeated.

To look for new ones: HYPOTHESIS_PROFILE=explore python -m pytest tests/storage
"""

import os

from hypothesis import settings

settings.register_profile("repeat", derandomize=True, deadline=None, database=None)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeat"))
