from __future__ import annotations

import pytest

from tests.support.people import Cast, cast


@pytest.fixture
def people(db: None) -> Cast:
    return cast()
