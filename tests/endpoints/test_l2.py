"""A look at somebody's Redis is a fact, whatever is there: never an exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from endpoints import l2
from endpoints.worker_spec import L2Access


def test_a_password_file_of_bytes_is_told(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_bytes(b"\xff\xfe\x00")
    assert "holds no text" in l2._ping(L2Access("redis://127.0.0.1:1", str(path)))


@pytest.mark.parametrize("url", ["redis://" + "x" * 64 + ":1", "redis://a..b:1"])
def test_a_host_which_no_resolver_takes_is_told(url: str) -> None:
    assert "cannot be asked" in l2._ping(L2Access(url))
