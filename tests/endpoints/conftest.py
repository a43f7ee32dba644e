"""Fixtures of all endpoint tests."""

from tests.support.endpoints.fixtures import *  # noqa: F403
