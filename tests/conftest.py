"""For all tests: what hypothesis may do, and clusters.

The same examples every run and none of them timed, so that a run says something about the change
and not about luck. HYPOTHESIS_PROFILE=explore looks for new ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests.support.kube.fixtures import *  # noqa: F403

settings.register_profile("same", deadline=None, derandomize=True)
settings.register_profile("explore", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


@pytest.fixture(autouse=True)
def _throttles_forget(request: pytest.FixtureRequest) -> Iterator[None]:
    """People of two tests have one number, so one's requests must not be counted against another's.

    Only where a database is asked for: other tests need no Django.
    """
    yield
    if {"db", "transactional_db", "django_db_setup"} & set(request.fixturenames):
        from django.core.cache import cache

        cache.clear()
