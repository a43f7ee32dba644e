"""Fixtures of the alert journey."""

from tests.support.dashboards.fixtures import *  # noqa: F403
