from __future__ import annotations

import pytest

from cachetier.client.address import Address, AddressError


def test_address_parts_are_parsed() -> None:
    assert Address.parse("redis://cache") == Address("cache", 6379)
    assert Address.parse("redis://127.0.0.1:6400/0") == Address("127.0.0.1", 6400)
    assert Address.parse("rediss://c:1/2?ca_file=/ca.pem&server_name=n") == Address(
        "c", 1, tls=True, database=2, ca_file="/ca.pem", server_name="n"
    )
    assert Address.parse("redis://[::1]:7").host == "::1"
    assert Address.parse("redis://c?weight=0.5&name=n") == Address("c", 6379, name="n", weight=0.5)


@pytest.mark.parametrize(
    "url",
    [
        "http://c",
        "c:6400",
        "redis://",
        "redis://c:port",
        "redis://c:99999",
        "redis://c/zero",
        "redis://c?tls=yes",
        "redis://c?weight=0",
        "redis://c?weight=-1",
        "redis://c?weight=nan",
        "redis://c?weight=inf",
        "redis://c?weight=much",
    ],
)
def test_invalid_addresses_are_rejected(url: str) -> None:
    with pytest.raises(AddressError):
        Address.parse(url)


def test_credentials_are_rejected_and_not_repeated() -> None:
    with pytest.raises(AddressError) as caught:
        Address.parse("redis://user:hunter2@cache:6379")
    assert "hunter2" not in str(caught.value)
