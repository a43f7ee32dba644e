"""redis-py against our node, Redis 7 and Valkey, in RESP2 and RESP3.

Intended differences are stated in the tests; everything else must be equal.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.support.cachenode import CacheNode, Redis, Valkey, redis_binary

PASSWORD = "open sesame"
# The largest value of these tests: several times a socket's buffers.
LARGE = bytes(range(256)) * 20_000


@pytest.fixture(scope="module", params=["emberline", "valkey", "redis"])
def cache(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[CacheNode | Valkey]:
    folder: Path = tmp_path_factory.mktemp(request.param)
    one: CacheNode | Valkey
    if request.param == "emberline":
        one = CacheNode(folder, "--allow-flush", "--login-failures", "100000", password=PASSWORD)
    elif request.param == "redis":
        if redis_binary() is None:
            pytest.skip("NO REDIS 7 HERE: `python -m console.launcher test-tools` fetches one")
        one = Redis(folder, password=PASSWORD)
    else:
        one = Valkey(folder, password=PASSWORD)
    yield one
    one.stop()


@pytest.fixture(params=[2, 3])
def db(request: pytest.FixtureRequest, cache: CacheNode | Valkey) -> Iterator[redis.Redis]:
    one = redis.Redis(port=cache.port, password=PASSWORD, protocol=request.param)
    one.flushall()
    yield one
    one.close()


def test_connection(db: redis.Redis) -> None:
    assert db.ping() is True
    assert db.echo("hello") == b"hello"
    assert db.client_setname("me") is True
    assert db.client_getname() in (b"me", "me")
    assert db.client_id() > 0
    assert db.client_info()["name"] == "me"
    assert any(client["name"] == "me" for client in db.client_list())
    assert db.select(0)


def test_values(db: redis.Redis) -> None:
    assert db.get("k") is None
    assert db.set("k", b"v\r\n\x00\xff") is True
    assert db.get("k") == b"v\r\n\x00\xff"
    assert db.set("empty", b"") is True
    assert db.get("empty") == b""
    assert db.strlen("k") == 5
    assert db.strlen("none") == 0
    assert db.exists("k", "empty", "none", "k") == 3
    assert db.type("k") == b"string"
    assert db.type("none") == b"none"
    assert db.touch("k", "none") == 1
    assert db.mget("k", "none", "empty") == [b"v\r\n\x00\xff", None, b""]
    assert db.dbsize() == 2
    assert db.delete("k", "none") == 1
    assert db.unlink("empty") == 1
    assert db.dbsize() == 0


@pytest.mark.parametrize("size", [16_383, 16_384, 16_385, 65_536, len(LARGE)])
def test_values_through_every_store_command(db: redis.Redis, size: int) -> None:
    value = LARGE[:size]
    assert db.set("k", value)
    assert db.get("k") == value
    assert db.mget(["k"] * 3) == [value] * 3
    assert db.getrange("k", -10, -1) == value[-10:]


def test_conditions(db: redis.Redis) -> None:
    assert db.set("k", "1", xx=True) is None
    assert db.set("k", "1", nx=True) is True
    assert db.set("k", "2", nx=True) is None
    assert db.get("k") == b"1"
    assert db.set("k", "3", xx=True) is True
    assert db.get("k") == b"3"
    assert db.execute_command("SETNX", "k", "4") == 0
    assert db.execute_command("SETNX", "new", LARGE) == 1
    assert db.get("new") == LARGE


def test_expiry(db: redis.Redis) -> None:
    db.set("a", "1", ex=100)
    db.set("b", "1", px=100_000)
    db.execute_command("SETEX", "c", 100, LARGE)
    db.execute_command("PSETEX", "d", 100_000, "1")
    db.set("ever", "1")
    for key in "abcd":
        assert 90 < db.ttl(key) <= 100
        assert 90_000 < db.pttl(key) <= 100_000
    assert (db.ttl("ever"), db.ttl("none"), db.pttl("none")) == (-1, -2, -2)
    assert db.expire("ever", 50) is True
    assert 40 < db.ttl("ever") <= 50
    assert db.pexpire("ever", 90_000) is True
    assert db.persist("ever") is True
    assert db.persist("ever") is False
    assert db.ttl("ever") == -1
    assert db.expire("none", 50) is False
    assert db.expire("a", -1) is True
    assert db.exists("a") == 0
    db.set("b", "2")
    assert db.ttl("b") == -1, "SET without a life takes the old one away"


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    [
        (0, -1, b"0123456789"),
        (2, 4, b"234"),
        (-3, -1, b"789"),
        (-100, 2, b"012"),
        (5, 100, b"56789"),
        (5, 2, b""),
        (100, 200, b""),
        (0, -100, b"0"),
        (-2, -5, b""),
    ],
)
def test_ranges(db: redis.Redis, first: int, last: int, expected: bytes) -> None:
    db.set("k", "0123456789")
    assert db.getrange("k", first, last) == expected
    assert db.getrange("none", first, last) == b""
    db.set("empty", "")
    assert db.getrange("empty", first, last) == b""


def test_scanning(db: redis.Redis) -> None:
    wanted = {b"key:%d" % i for i in range(257)}
    for key in wanted:
        db.set(key, "1")
    db.set("other", "1")
    assert set(db.scan_iter(match="key:*", count=10)) == wanted
    assert set(db.scan_iter(count=1000)) == wanted | {b"other"}
    assert set(db.keys("key:1?")) == {b"key:1%d" % i for i in range(10)}
    assert set(db.keys("key:[12]")) == {b"key:1", b"key:2"}


def test_scan_returns_every_stable_key(db: redis.Redis) -> None:
    for i in range(300):
        db.set(f"stays:{i}", "1")
    seen: set[bytes] = set()
    cursor, turn = 0, 0
    while True:
        cursor, keys = db.scan(cursor, count=20)
        seen.update(keys)
        db.set(f"comes:{turn}", "1")
        db.get("stays:7")
        turn += 1
        if cursor == 0:
            break
    assert {b"stays:%d" % i for i in range(300)} <= seen


def test_pipelines_are_answered_in_order(db: redis.Redis) -> None:
    with db.pipeline(transaction=False) as pipe:
        for i in range(200):
            pipe.set(f"k{i}", bytes([i]) * (i * 200))
            pipe.get(f"k{i}")
        answers = pipe.execute()
    assert answers[1::2] == [bytes([i]) * (i * 200) for i in range(200)]


def test_server_information(db: redis.Redis) -> None:
    db.set("k", "v")
    info = db.info()
    assert info["maxmemory"] == 64 * 1024 * 1024 or info["maxmemory"] == 64_000_000
    assert info["role"] == "master"
    assert info["db0"]["keys"] == 1
    assert info["used_memory"] > 0
    assert db.config_get("maxmemory-policy") == {"maxmemory-policy": "allkeys-lru"}
    assert db.config_get("no-such") == {}
    assert db.command_count() > 10
    assert b"get" in [name.lower() for name in _names(db)]


def _names(db: redis.Redis) -> list[bytes]:
    return [name if isinstance(name, bytes) else name.encode() for name in db.command()]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("NOSUCH", "x"), "unknown command"),
        (("GET",), "wrong number of arguments"),
        (("GET", "a", "b"), "wrong number of arguments"),
        (("SET", "k"), "wrong number of arguments"),
        (("SET", "k", "v", "NX", "XX"), "syntax error"),
        (("SET", "k", "v", "EX", "1", "PX", "1"), "syntax error"),
        (("SET", "k", "v", "WHAT"), "syntax error"),
        (("SET", "k", "v", "EX", "0"), "invalid expire"),
        (("SET", "k", "v", "EX", "-5"), "invalid expire"),
        (("SET", "k", "v", "EX", "soon"), "not an integer"),
        (("SETEX", "k", "0", "v"), "invalid expire"),
        (("GETRANGE", "k", "a", "b"), "not an integer"),
        (("SELECT", "99"), "DB index is out of range"),
        (("SELECT", "x"), "invalid|integer"),
        (("CLIENT", "NOSUCH"), "subcommand"),
        (("CONFIG", "NOSUCH"), "subcommand|command line"),
        (("SCAN", "x"), "invalid cursor|integer"),
        (("HELLO", "9"), "NOPROTO|unsupported protocol"),
        (("CLIENT", "SETNAME", "a b"), "cannot contain"),
    ],
)
def test_errors_are_replies_and_keep_the_connection(
    db: redis.Redis, words: tuple[str, ...], code: str
) -> None:
    with pytest.raises(redis.ResponseError, match=f"(?i){code}"):
        db.execute_command(*words)
    assert db.ping()


def guest(cache: CacheNode | Valkey, **login: str) -> redis.Redis:
    """Takes a no for a no: by itself the client repeats a refused login for seconds."""
    return redis.Redis(port=cache.port, retry=Retry(NoBackoff(), 0), **login)


def test_login_is_required(cache: CacheNode | Valkey) -> None:
    with pytest.raises(redis.AuthenticationError):
        guest(cache).get("k")
    with pytest.raises(redis.AuthenticationError):
        guest(cache, password="wrong").get("k")
    with pytest.raises(redis.AuthenticationError):
        guest(cache, username="nobody", password=PASSWORD).get("k")
    named = guest(cache, username="default", password=PASSWORD)
    assert named.ping()
    with socket.create_connection(("127.0.0.1", cache.port), timeout=60) as sock:
        for words in (b"HELLO 3", b"CLIENT ID", b"CONFIG GET *"):
            sock.sendall(words + b"\r\n")
            assert sock.recv(1000).startswith(b"-NOAUTH")
        sock.sendall(b"HELLO 3 AUTH default wrong\r\n")
        assert sock.recv(1000).startswith(b"-WRONGPASS")
