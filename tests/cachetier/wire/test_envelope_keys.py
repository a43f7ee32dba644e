from __future__ import annotations

import pytest

from cachetier.wire.envelope import block_key, parse_namespace


def test_block_key_has_the_documented_form() -> None:
    assert block_key("0f" * 16, 3, b"\x00\xab") == b"emb1:" + b"0f" * 16 + b":3:00ab"


def test_namespace_is_extracted_from_a_key() -> None:
    assert parse_namespace(block_key("0f" * 16, 3, b"\x00\xab")) == "0f" * 16


@pytest.mark.parametrize(
    "key",
    [
        b"",
        b"emb1:",
        b"emb1:x",
        b"emb1::0:1",
        b"emb2:a:0:1",
        b"emb1:\xff\xfe:0:1",
        b"kvl2:a:0",
        b'emb1:a"}:0:1',
        b"emb1:" + b"a" * 65 + b":0:1",
    ],
)
def test_other_keys_have_no_namespace(key: bytes) -> None:
    assert parse_namespace(key) == ""
