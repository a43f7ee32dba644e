"""JSON input."""

from __future__ import annotations

import pytest

from console.core.json_reader import parse


@pytest.mark.parametrize(
    "text", ['"\\u0000"', '{"a": ["x\\u0000"]}', '{"\\u0000": 1}', '"\\\\\\u0000"']
)
def test_nul_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="NUL"):
        parse(text)


@pytest.mark.parametrize("text", ['"\\\\u0000"', '"u0000"', '"\\u0001"'])
def test_other_text_is_read(text: str) -> None:
    assert isinstance(parse(text), str)
