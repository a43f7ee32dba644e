"""Fixtures of the alert journey."""

from tests.support.dashboards.fixtures import nothing_kept  # noqa: F401
