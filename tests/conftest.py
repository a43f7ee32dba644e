"""For all tests: what hypothesis may do, and clusters.

The same examples every run and none of them timed, so that a run says something about the change
and not about luck. HYPOTHESIS_PROFILE=explore looks for new ones.
"""

from __future__ import annotations

import os

from hypothesis import settings

from tests.support.kube.fixtures import *  # noqa: F403

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))
