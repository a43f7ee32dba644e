"""Fixtures of all dashboard tests."""

from tests.support.dashboards.fixtures import nothing_kept  # noqa: F401
