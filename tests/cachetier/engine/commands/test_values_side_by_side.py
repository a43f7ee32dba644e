"""Equal bytes to our node, Redis 7 and Valkey: the replies must be equal to the byte.

Conversations are compared reply by reply in both protocol versions, with their types, which client
libraries hide. Intended differences have their own tests and are listed in docs/cache-protocol.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cachetier.wire.commands import LEASES, TABLE
from tests.support.cachenode import CacheNode, Redis, Valkey, redis_binary
from tests.support.resp import RawClient, Reply

PASSWORD = "open sesame"
Server = CacheNode | Valkey


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CacheNode]:
    one = CacheNode(
        tmp_path_factory.mktemp("node"),
        "--allow-flush",
        "--login-failures",
        "100000",
        password=PASSWORD,
    )
    yield one
    one.stop()


@pytest.fixture(scope="module", params=["redis", "valkey"])
def other(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Valkey]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    if request.param == "redis" and redis_binary() is None:
        pytest.skip("NO REDIS 7 HERE: `python -m console.launcher test-tools` fetches one")
    one = (
        Redis(folder, password=PASSWORD)
        if request.param == "redis"
        else Valkey(folder, password=PASSWORD)
    )
    yield one
    one.stop()


def talk(server: Server, lines: list[str], version: int) -> list[Reply]:
    with RawClient(server.port) as client:
        assert client.ask("HELLO", str(version), "AUTH", "default", PASSWORD)[0] in "*%"
        assert client.call("FLUSHALL")[0] == "+"
        return [client.call(line) for line in lines]


VALUES = """
GET k|SET k v|GET k|STRLEN k|TYPE k|EXISTS k k x|MGET k x|GETRANGE k 0 0|TOUCH k x|DBSIZE
SET k v2 NX|SET k v2 XX|SET x 1 XX|SETNX x 1|SETNX x 2|GET x|DEL x y|UNLINK k|TYPE k|DBSIZE
SET k v EX 100|TTL k|SET k w KEEPTTL|TTL k|SET k w|TTL k|SET k w PX 100000|TTL k|PERSIST k
PERSIST k|SET k v EXAT 99999999999|TTL x|SET k v EXAT 1|GET k|SET k v PXAT 1|EXISTS k
SET k v KEEPTTL|TTL k|SETEX k 100 v|TTL k|PSETEX k 100000 v|EXPIRE k 50 NX|EXPIRE k 50 XX|TTL k
EXPIRE k 60 GT|EXPIRE k 55 GT|EXPIRE k 60 LT|EXPIRE k 50 LT|TTL k|PERSIST k|EXPIRE k 10 GT
EXPIRE k 10 XX|EXPIRE k 10 LT|TTL k|PEXPIRE k 90000|TTL k|EXPIREAT k 99999999|EXISTS k|SET k v
EXPIREAT k 4102444800|EXPIRETIME k|PEXPIRETIME k|PEXPIREAT k 4102444800123|PEXPIRETIME k
PERSIST k|EXPIRETIME k|EXPIRETIME none|EXPIRE k 0|EXISTS k|PTTL k|SET k v|PEXPIRE k -1|EXISTS k
EXPIRE none 5|EXPIRE none 5 NX
"""
ERRORS = """
NOSUCH|NOSUCH a b|GET|GET a b|SET k|SET k v EX|SET k v EX 0|SET k v EX -1|SET k v EX x
SET k v PX 1.5|SET k v EX 1 PX 1|SET k v NX XX|SET k v WHAT|SET k v KEEPTTL EX 5|SET k v EXAT 0
SETEX k 0 v|SETEX k x v|PSETEX k -1 v|SET k v EX 99999999999999999999
SET k v EX 9223372036854775807|EXPIRE k x|EXPIRE k|EXPIRE k 1 NX XX|EXPIRE k 1 GT LT
EXPIRE k 1 FOO|GETRANGE k a b|GETRANGE k 0|SELECT x|SELECT 99|SELECT|PING a b|ECHO|ECHO a b|TTL
STRLEN|DEL|MGET|SCAN x|SCAN 0 COUNT|SCAN 0 COUNT 0|SCAN 0 COUNT x|SCAN 0 FOO 1|SCAN 0 MATCH|KEYS
DBSIZE a|FLUSHALL FOO|FLUSHDB A B|HELLO 1|HELLO 4|HELLO x|HELLO 3 FOO|HELLO 3 AUTH a
HELLO 3 SETNAME|AUTH|AUTH a b c|AUTH wrong|AUTH nobody wrong|AUTH default wrong|CLIENT
CLIENT NOSUCH|CLIENT SETNAME|CLIENT ID x|CLIENT KILL x|CLIENT KILL ID 0
CLIENT KILL FOO 1|CLIENT KILL ID 1 SKIPME|CLIENT KILL SKIPME maybe|CLIENT KILL TYPE x
CLIENT LIST FOO|CLIENT LIST TYPE x|CLIENT LIST ID|CLIENT NO-EVICT x
CLIENT INFO x|CONFIG|CONFIG GET|CONFIG NOSUCH|MEMORY|MEMORY USAGE|MEMORY USAGE k FOO 1
MEMORY USAGE k SAMPLES|MEMORY USAGE k SAMPLES x|MEMORY NOSUCH|COMMAND NOSUCH|COMMAND COUNT x
COMMAND GETKEYS|COMMAND GETKEYS NOSUCH a|COMMAND GETKEYS PING x
COMMAND GETKEYS GET a b|COMMAND LIST FOO|ACL|ACL NOSUCH|ACL WHOAMI x|TIME x|PERSIST|SETNX k
RESET x
"""
CONNECTION = """
PING|PING hello|ECHO hello|CLIENT GETNAME|CLIENT SETNAME me|CLIENT GETNAME|CLIENT SETNAME a\tb
CLIENT GETREDIR|CLIENT NO-EVICT on|CLIENT NO-EVICT off|SELECT 0|ACL WHOAMI
CLIENT LIST TYPE pubsub|CLIENT LIST ID 999999|CLIENT KILL ID 999999|CLIENT KILL ADDR 1.2.3.4:5
CLIENT KILL USER nobody|CONFIG GET save|CONFIG GET nosuch|CONFIG GET maxmemory-policy
CONFIG GET append*nly
MEMORY USAGE none|COMMAND GETKEYS MGET a b|COMMAND INFO nosuch|COMMAND GETKEYS SET k v EX 5
COMMAND DOCS nosuch|SCAN 0|SCAN 0 TYPE hash|KEYS *|FLUSHALL ASYNC|FLUSHDB SYNC|RESET|GET k|PING
CLIENT ID|AUTH default wrong
"""


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("script", ["VALUES", "ERRORS", "CONNECTION"])
def test_equal_commands_have_equal_replies(
    node: CacheNode, other: Valkey, script: str, version: int
) -> None:
    lines = [line for row in globals()[script].strip().splitlines() for line in row.split("|")]
    ours, theirs = (talk(server, lines, version) for server in (node, other))
    different = [
        f"{line}: {a} is not {b}" for line, a, b in zip(lines, ours, theirs, strict=True) if a != b
    ]
    assert not different, "\n".join(different)


@pytest.mark.parametrize("version", [2, 3])
def test_human_readable_replies_have_their_own_type(
    node: CacheNode, other: Valkey, version: int
) -> None:
    lines = ["INFO", "CLIENT INFO", "CLIENT LIST", "TIME", "CONFIG GET maxclients"]
    ours, theirs = (talk(server, lines, version) for server in (node, other))
    assert [kind for kind, _ in ours] == [kind for kind, _ in theirs]


# Flags about what this node has not (scripts, transactions), in which Redis and Valkey differ.
_ELSEWHERE = frozenset({b"allow_busy", b"skip_slowlog", b"skip_monitor"})


def _facts(server: Server, name: str) -> tuple[int, frozenset[bytes], int, int, int]:
    with RawClient(server.port) as client:
        client.ask("AUTH", PASSWORD)
        _, entries = client.ask("COMMAND", "INFO", name)
        fields = [value for _, value in entries[0][1]]
        flags = frozenset(flag for _, flag in fields[2]) - _ELSEWHERE
        return fields[1], flags, fields[3], fields[4], fields[5]


_NEWER = {"client|setinfo", "client|no-touch", "command|getkeys"}


_OURS = {command.name for command in LEASES}


def test_command_table_equals_that_of_redis(node: CacheNode, other: Valkey) -> None:
    names = list(TABLE) + [
        f"{one.name}|{sub.name}" for one in TABLE.values() for sub in one.subcommands
    ]
    different = []
    for name in names:
        if name in _NEWER and isinstance(other, Redis):
            continue
        if name in _OURS:
            continue
        ours, theirs = _facts(node, name), _facts(other, name)
        if ours != theirs:
            different.append(f"{name}: {ours} is not {theirs}")
    assert not different, "\n".join(different)


pieces = st.sampled_from(
    [b"a", b"b", b"ab", b"*", b"?", b"[ab]", b"[^a]", b"[a-b]", b"[b-a]", b"\\*", b"\\", b"[", b"]",
     b"[]", b"[^]", b"[a", b"-", b"[a-", b"[\\]]", b"!", b"."]
)  # fmt: skip
KEYS = [b"a", b"b", b"ab", b"ba", b"aab", b"*", b"?", b"[", b"]", b"a]", b"a-b", b"\\", b"!", b".",
        b"a\nb", b"a*", b"\xff", b"[a", b"abab", b"-"]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(pieces, max_size=6).map(b"".join), min_size=10, max_size=10))
def test_patterns_match_as_in_redis(node: CacheNode, other: Valkey, patterns: list[bytes]) -> None:
    with RawClient(node.port) as ours, RawClient(other.port) as theirs:
        for client in (ours, theirs):
            client.ask("AUTH", PASSWORD)
            client.call("FLUSHALL")
            for key in KEYS:
                client.ask("SET", key, "1")
        for pattern in patterns:
            found = [sorted(c.ask("KEYS", pattern)[1]) for c in (ours, theirs)]
            assert found[0] == found[1], pattern
