"""Extended deadlines (tests/support/patience.py)."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.support import patience


@pytest.mark.parametrize("module", patience.DEADLINES)
def test_deadlines_exist_and_are_extended(module: str) -> None:
    found = import_module(module)
    for name in patience.DEADLINES[module]:
        assert 0 < getattr(found, name) <= patience.PATIENT_S
    patience.extend_deadlines()
    assert {getattr(found, name) for name in patience.DEADLINES[module]} == {patience.PATIENT_S}
