"""Run valkey-glide against a server: `python glide_driver.py PORT [PASSWORD [CA]]`.

Run by the Python of `.venv-clients`. valkey-glide is Valkey's client in Rust, with its own
handshake (HELLO, CLIENT SETINFO, INFO REPLICATION).
Prints "ok" for each protocol version.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from glide import (
    AdvancedGlideClientConfiguration,
    Batch,
    ConditionalChange,
    ExpirySet,
    ExpiryType,
    GlideClient,
    GlideClientConfiguration,
    InfoSection,
    NodeAddress,
    ProtocolVersion,
    RequestError,
    ServerCredentials,
    TlsAdvancedConfiguration,
)

PORT, PASSWORD, CA = [*sys.argv[1:], "", ""][:3]


def _config(protocol: ProtocolVersion) -> GlideClientConfiguration:
    advanced = None
    if CA:
        tls = TlsAdvancedConfiguration(root_pem_cacerts=Path(CA).read_bytes())
        advanced = AdvancedGlideClientConfiguration(tls_config=tls)
    return GlideClientConfiguration(
        [NodeAddress("localhost" if CA else "127.0.0.1", int(PORT))],
        use_tls=bool(CA),
        credentials=ServerCredentials(PASSWORD) if PASSWORD else None,
        protocol=protocol,
        client_name="glide",
        advanced_config=advanced,
    )


async def main(protocol: ProtocolVersion) -> None:
    client = await GlideClient.create(_config(protocol))
    assert await client.ping() == b"PONG"
    assert b"redis_mode:standalone" in await client.info([InfoSection.SERVER])
    assert await client.client_getname() == b"glide"
    large = os.urandom(3 << 20)
    assert await client.set("k", large) == "OK"
    assert await client.get("k") == large
    assert await client.strlen("k") == len(large)
    assert await client.getrange("k", -10, -1) == large[-10:]
    assert await client.set("k", b"x", ConditionalChange.ONLY_IF_DOES_NOT_EXIST) is None
    assert await client.set("s", b"v", expiry=ExpirySet(ExpiryType.SEC, 100)) == "OK"
    assert 90 < await client.ttl("s") <= 100
    assert await client.expire("s", 50)
    assert await client.mget(["k", "none", "s"]) == [large, None, b"v"]
    assert await client.exists(["k", "s", "none"]) == 2
    batch = Batch(is_atomic=False)
    for number in range(100):
        batch.set(f"b{number}", bytes(number))
        batch.get(f"b{number}")
    assert (await client.exec(batch, raise_on_error=True))[1::2] == [bytes(n) for n in range(100)]
    cursor, seen = b"0", set()
    while True:
        cursor, keys = await client.scan(cursor, match="b*", count=30)
        seen.update(keys)
        if cursor == b"0":
            break
    assert len(seen) == 100
    assert await client.config_get(["maxmemory-policy"])
    try:
        await client.custom_command(["LPUSH", "l", "v"])
        raise AssertionError("a list, in a cache?")
    except RequestError as error:
        assert "unknown command" in str(error).lower(), error
    assert await client.delete(["k", "s"]) == 2
    await client.close()
    print(f"ok {protocol.name}")


for one in (ProtocolVersion.RESP2, ProtocolVersion.RESP3):
    asyncio.run(main(one))
