"""Command table of the cache node: dispatch, arity, help and metric labels.

Single source for session dispatch, COMMAND and `X HELP` replies, and
docs/reference/cache-commands.md. `arity` includes the name (both names of a subcommand); negative
means "at least". Arity, flags and key positions (`first_key`, `last_key`, `step`) are those of
Redis 7, compared by a test. `op` labels emberline_l2_operations_total ("" = not counted). `differs`
describes differences from Redis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    arity: int
    summary: str
    flags: tuple[str, ...]
    usage: str = ""
    op: str = ""
    first_key: int = 0
    last_key: int = 0
    step: int = 0
    group: str = "server"
    since: str = "1.0.0"
    differs: str = ""
    subcommands: tuple[Command, ...] = ()

    @property
    def before_login(self) -> bool:
        return "no_auth" in self.flags

    def accepts(self, count: int) -> bool:
        """Return whether `count` words, including the name, match the arity."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity

    def subcommand(self, name: str) -> Command | None:
        return next(
            (subcommand for subcommand in self.subcommands if subcommand.name == name), None
        )


_READ = ("readonly", "fast")
_LOOK = ("readonly",)
_STORE = ("write", "denyoom")
_CHANGE = ("write", "fast")
_DROP = ("write",)
_OPEN = ("noscript", "loading", "stale", "fast", "no_auth", "allow_busy")
_ANYTIME = ("loading", "stale")
_ADMIN = ("admin", "noscript", "loading", "stale")
_CLIENT = ("noscript", "loading", "stale")


_one_key = partial(
    Command, flags=_READ, usage="key", first_key=1, last_key=1, step=1, group="string"
)
_many_keys = partial(
    Command, flags=_READ, usage="key [key ...]", first_key=1, last_key=-1, step=1, group="generic"
)


def _named(group: str, commands: tuple[Command, ...]) -> tuple[Command, ...]:
    return tuple(replace(command, group=group) for command in commands)


def _container(
    name: str,
    summary: str,
    subcommands: tuple[Command, ...],
    *,
    since: str,
    differs: str,
    group: str = "server",
) -> Command:
    """Build a command that requires a subcommand; HELP is added."""
    help_ = Command("help", 2, "List the subcommands.", _ANYTIME, since="5.0.0")
    return Command(
        name, -2, summary, (), group=group, since=since, differs=differs,
        subcommands=_named(group, (*subcommands, help_)),
    )  # fmt: skip


_CONNECTION = (
    Command("ping", -1, "Reply PONG, or the given argument.", ("fast",), "[word]"),
    Command("echo", 2, "Reply the given argument.", ("loading", "stale", "fast"), "word"),
    Command(
        "hello", -1, "Select the protocol version and log in.", _OPEN,
        "[2 | 3 [AUTH user password] [SETNAME name]]", since="6.0.0",
        differs="`server` is `emberline`",
    ),
    Command(
        "auth", -2, "Log in.", _OPEN, "[user] password",
        differs="after many failed logins from one address the reply is delayed and the "
        "connection closed; the correct password is always accepted",
    ),
    Command("quit", -1, "Close the connection.", _OPEN[:-1]),
    Command(
        "select", 2, "Select a database.", ("loading", "stale", "fast"), "index",
        differs="database 0 only",
    ),
    Command(
        "reset", 1, "Reset the connection's name and login.", _OPEN, since="6.2.0"
    ),
)  # fmt: skip

_CLIENTS = _container(
    "client",
    "Connection commands.",
    (
        Command("getname", 2, "Return the connection name.", _CLIENT, since="2.6.9"),
        Command(
            "getredir", 2, "Always -1: no tracking redirection.", _CLIENT, since="6.0.0",
        ),
        Command("id", 2, "Return the connection ID.", _CLIENT, since="5.0.0"),
        Command("info", 2, "Describe the connection.", _CLIENT, since="6.2.0"),
        Command(
            "kill", -3, "Close connections.", _ADMIN,
            "host:port | [ID number] [ADDR host:port] [LADDR host:port] [USER name] "
            "[TYPE normal] [SKIPME yes | no]", since="2.4.0",
        ),
        Command(
            "list", -2, "List the connections.", _ADMIN, "[TYPE normal] [ID number ...]",
            since="2.4.0", differs="without fields of replication, Pub/Sub and transactions",
        ),
        Command(
            "no-evict", 3, "Accepted without effect: connections are not evicted.", _ADMIN,
            "ON | OFF", since="7.0.0",
        ),
        Command(
            "no-touch", 3, "Control whether reads affect the eviction order.", _CLIENT,
            "ON | OFF", since="7.2.0", differs="OFF only",
        ),
        Command(
            "setinfo", 4, "Set the client library's name and version.", _CLIENT,
            "LIB-NAME name | LIB-VER version", since="7.2.0",
        ),
        Command("setname", 3, "Set the connection name.", _CLIENT, "name", since="2.6.9"),
    ),
    group="connection",
    since="2.4.0",
    differs="no TRACKING, PAUSE, REPLY, UNBLOCK",
)  # fmt: skip

_VALUES = (
    _many_keys("exists", -2, "Count the existing keys.", op="exists",
               differs="counts as a use"),
    _one_key("get", 2, "Return the value of a key.", op="get"),
    _many_keys("mget", -2, "Return the values of keys.", op="get", group="string"),
    _one_key(
        "set", -3, "Store a value.", op="put", flags=_STORE,
        usage="key value [NX | XX] [EX seconds | PX milliseconds | EXAT unix-seconds | "
        "PXAT unix-milliseconds | KEEPTTL]",
        differs="no GET; a block (`emb1:`) with an invalid envelope is rejected",
    ),
    _one_key("setex", 4, "Store a value with a TTL in seconds.", op="put", flags=_STORE,
             usage="key seconds value", since="2.0.0"),
    _one_key("psetex", 4, "Store a value with a TTL in milliseconds.", op="put", flags=_STORE,
             usage="key milliseconds value", since="2.6.0"),
    _one_key("setnx", 3, "Store a value unless the key exists.", op="put",
             flags=(*_STORE, "fast"), usage="key value"),
    _one_key("strlen", 2, "Return the length of a value; does not count as a use.", since="2.2.0"),
    _one_key("getrange", 4, "Return part of a value.", op="get", flags=_LOOK,
             usage="key first last", since="2.4.0"),
    _many_keys("del", -2, "Delete keys.", op="delete", flags=_DROP),
    _many_keys("unlink", -2, "Delete keys (same as DEL).", op="delete", flags=_CHANGE,
               since="4.0.0"),
    _many_keys("touch", -2, "Mark keys as used and count the existing ones.", op="exists",
               since="3.2.1"),
    _one_key("type", 2, "`string`, or `none`.", group="generic"),
)  # fmt: skip

_WHEN = "[NX | XX | GT | LT]"
_LIVES = tuple(
    replace(command, group="generic")
    for command in (
        _one_key("ttl", 2, "Return the TTL in seconds; -1: none, -2: no such key."),
        _one_key("pttl", 2, "Return the TTL in milliseconds.", since="2.6.0"),
        _one_key("expire", -3, "Set the TTL in seconds.", flags=_CHANGE,
                 usage=f"key seconds {_WHEN}"),
        _one_key("pexpire", -3, "Set the TTL in milliseconds.", flags=_CHANGE,
                 usage=f"key milliseconds {_WHEN}", since="2.6.0"),
        _one_key("expireat", -3, "Set the expiry time.", flags=_CHANGE,
                 usage=f"key unix-seconds {_WHEN}", since="1.2.0"),
        _one_key("pexpireat", -3, "Set the expiry time.", flags=_CHANGE,
                 usage=f"key unix-milliseconds {_WHEN}", since="2.6.0"),
        _one_key("expiretime", 2, "Return the expiry time in seconds.", since="7.0.0"),
        _one_key("pexpiretime", 2, "Return the expiry time in milliseconds.", since="7.0.0"),
        _one_key("persist", 2, "Remove the expiry; the key stays until evicted.", flags=_CHANGE,
                 since="2.2.0"),
    )
)  # fmt: skip

_WALKS = (
    Command("dbsize", 1, "Count the keys.", _READ),
    Command(
        "scan", -2, "Iterate over the keys.", _LOOK,
        "cursor [MATCH pattern] [COUNT number] [TYPE string]", group="generic", since="2.8.0",
        differs="an iteration returns the keys that existed at its start; at most 16 iterations, "
        "the oldest is dropped; patterns up to 1,024 bytes, COUNT up to 10,000",
    ),
    Command("keys", 2, "Return the keys that match a pattern.", _LOOK, "pattern", group="generic",
           differs="does not block other clients; patterns up to 1,024 bytes"),
)  # fmt: skip

_NODE = (
    Command("info", -1, "Return information about the node.", _ANYTIME, "[section ...]"),
    Command("time", 1, "Return the node's clock in seconds and microseconds.", (*_ANYTIME, "fast"),
           since="2.6.0"),
    _container(
        "config",
        "Configuration commands.",
        (
            Command("get", -3, "Return settings that match patterns.", _ADMIN,
                   "pattern [pattern ...]", since="2.0.0",
                   differs="at most 64 patterns of up to 1,024 bytes"),
        ),
        since="2.0.0",
        differs="settings are command-line flags: no SET, REWRITE, RESETSTAT",
    ),
    _container(
        "memory",
        "Memory commands.",
        (
            Command("usage", -3, "Return the memory used by a key (bytes).", _LOOK,
                    "key [SAMPLES number]", first_key=2, last_key=2, step=1, since="4.0.0"),
        ),
        since="4.0.0",
        differs="based on the node's accounting; no DOCTOR, STATS, PURGE",
    ),
    _container(
        "acl",
        "Access control commands.",
        (Command("whoami", 2, "Return the user of the connection.", _CLIENT, since="6.0.0"),),
        since="6.0.0",
        differs="users are command-line flags",
    ),
    replace(
        _container(
            "command",
            "Command table.",
            (
                Command("count", 2, "Count the commands.", _ANYTIME, since="2.8.13"),
                Command("docs", -2, "Document commands.", _ANYTIME, "[name ...]",
                       since="7.0.0", differs="no complexity; syntax as one text"),
                Command("getkeys", -3, "Return the keys in a command's arguments.", _ANYTIME,
                       "command [word ...]", since="2.8.13"),
                Command("info", -2, "Return arity, flags and key positions.", _ANYTIME,
                       "[name ...]", since="2.8.13"),
                Command("list", -2, "List the command names.", _ANYTIME, since="7.0.0",
                       differs="no FILTERBY"),
            ),
            since="2.8.13",
            differs="no ACL categories, tips or key specifications",
        ),
        arity=-1,
        flags=_ANYTIME,
    ),
    Command("flushall", -1, "Delete all keys.", _DROP, "[ASYNC | SYNC]",
           differs="rejected unless the node was started with `--allow-flush`"),
    Command("flushdb", -1, "Same as FLUSHALL.", _DROP, "[ASYNC | SYNC]",
           differs="as FLUSHALL"),
)  # fmt: skip


# Not in Redis: see cachetier/engine/commands/leases.py.
LEASES = (
    Command(
        "lease", -3, "Pin values in shared memory for a reader on this host.", _LOOK,
        "milliseconds key [key ...]", "get", 2, -1, 1, group="emberline",
        differs="not in Redis; at most 4,096 keys",
    ),
    Command(
        "unlease", 2, "End a lease before its time.", ("fast",), "number", group="emberline",
        differs="not in Redis",
    ),
)  # fmt: skip


TABLE: dict[str, Command] = {
    command.name: command
    for command in (
        *_named("connection", _CONNECTION),
        _CLIENTS,
        *_VALUES,
        *_LIVES,
        *_WALKS,
        *_NODE,
        *LEASES,
    )
}

# All label values of emberline_l2_operations_total{op=}.
OPERATIONS: tuple[str, ...] = ("get", "put", "exists", "delete")
