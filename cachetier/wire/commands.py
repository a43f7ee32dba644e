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
        return next((one for one in self.subcommands if one.name == name), None)


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
    help_ = Command("help", 2, "This text.", _ANYTIME, since="5.0.0")
    return Command(
        name, -2, summary, (), group=group, since=since, differs=differs,
        subcommands=_named(group, (*subcommands, help_)),
    )  # fmt: skip


_CONNECTION = (
    Command("ping", -1, "Answer PONG, or the word given.", ("fast",), "[word]"),
    Command("echo", 2, "Answer the word given.", ("loading", "stale", "fast"), "word"),
    Command(
        "hello", -1, "Choose the protocol version, log in.", _OPEN,
        "[2 | 3 [AUTH user password] [SETNAME name]]", since="6.0.0",
        differs="`server` is `emberline`",
    ),
    Command(
        "auth", -2, "Log in.", _OPEN, "[user] password",
        differs="after many wrong passwords from one address a further one is answered late and "
        "ends the connection; the right one is always accepted",
    ),
    Command("quit", -1, "Close this connection.", _OPEN[:-1]),
    Command(
        "select", 2, "Choose a database.", ("loading", "stale", "fast"), "index",
        differs="there is only 0",
    ),
    Command(
        "reset", 1, "Forget this connection's name and login.", _OPEN, since="6.2.0"
    ),
)  # fmt: skip

_CLIENTS = _container(
    "client",
    "Facts about connections.",
    (
        Command("getname", 2, "The name of this connection.", _CLIENT, since="2.6.9"),
        Command(
            "getredir", 2, "Always -1: nothing is redirected.", _CLIENT, since="6.0.0",
        ),
        Command("id", 2, "The number of this connection.", _CLIENT, since="5.0.0"),
        Command("info", 2, "This connection in words.", _CLIENT, since="6.2.0"),
        Command(
            "kill", -3, "Close connections.", _ADMIN,
            "host:port | [ID number] [ADDR host:port] [LADDR host:port] [USER name] "
            "[TYPE normal] [SKIPME yes | no]", since="2.4.0",
        ),
        Command(
            "list", -2, "Every connection in words.", _ADMIN, "[TYPE normal] [ID number ...]",
            since="2.4.0", differs="fields of replication, Pub/Sub and transactions are left out",
        ),
        Command(
            "no-evict", 3, "Taken, and means nothing: connections are not evicted.", _ADMIN,
            "ON | OFF", since="7.0.0",
        ),
        Command(
            "no-touch", 3, "Whether reads leave the order of eviction alone.", _CLIENT,
            "ON | OFF", since="7.2.0", differs="only OFF, which is so",
        ),
        Command(
            "setinfo", 4, "The client library's name and version.", _CLIENT,
            "LIB-NAME name | LIB-VER version", since="7.2.0",
        ),
        Command("setname", 3, "Name this connection.", _CLIENT, "name", since="2.6.9"),
    ),
    group="connection",
    since="2.4.0",
    differs="no TRACKING, PAUSE, REPLY, UNBLOCK",
)  # fmt: skip

_VALUES = (
    _many_keys("exists", -2, "How many of the keys are there.", op="exists",
               differs="counts as a use"),
    _one_key("get", 2, "The value of a key.", op="get"),
    _many_keys("mget", -2, "The values of keys.", op="get", group="string"),
    _one_key(
        "set", -3, "Store a value.", op="put", flags=_STORE,
        usage="key value [NX | XX] [EX seconds | PX milliseconds | EXAT unix-seconds | "
        "PXAT unix-milliseconds | KEEPTTL]",
        differs="no GET; a block (`emb1:`) whose envelope does not fit is refused",
    ),
    _one_key("setex", 4, "Store a value for some seconds.", op="put", flags=_STORE,
             usage="key seconds value", since="2.0.0"),
    _one_key("psetex", 4, "Store a value for some milliseconds.", op="put", flags=_STORE,
             usage="key milliseconds value", since="2.6.0"),
    _one_key("setnx", 3, "Store a value unless the key is there.", op="put",
             flags=(*_STORE, "fast"), usage="key value"),
    _one_key("strlen", 2, "The length of a value, not counted as a use.", since="2.2.0"),
    _one_key("getrange", 4, "Part of a value.", op="get", flags=_LOOK, usage="key first last",
             since="2.4.0"),
    _many_keys("del", -2, "Drop keys.", op="delete", flags=_DROP),
    _many_keys("unlink", -2, "Drop keys (the same as DEL here).", op="delete", flags=_CHANGE,
               since="4.0.0"),
    _many_keys("touch", -2, "Count as a use; how many of the keys are there.", op="exists",
               since="3.2.1"),
    _one_key("type", 2, "`string`, or `none`.", group="generic"),
)  # fmt: skip

_WHEN = "[NX | XX | GT | LT]"
_LIVES = tuple(
    replace(one, group="generic")
    for one in (
        _one_key("ttl", 2, "Seconds a key still has: -1 for ever, -2 no such key."),
        _one_key("pttl", 2, "Milliseconds a key still has.", since="2.6.0"),
        _one_key("expire", -3, "Give a key so many seconds.", flags=_CHANGE,
                 usage=f"key seconds {_WHEN}"),
        _one_key("pexpire", -3, "Give a key so many milliseconds.", flags=_CHANGE,
                 usage=f"key milliseconds {_WHEN}", since="2.6.0"),
        _one_key("expireat", -3, "Let a key end at a time.", flags=_CHANGE,
                 usage=f"key unix-seconds {_WHEN}", since="1.2.0"),
        _one_key("pexpireat", -3, "Let a key end at a time.", flags=_CHANGE,
                 usage=f"key unix-milliseconds {_WHEN}", since="2.6.0"),
        _one_key("expiretime", 2, "When a key ends, in seconds.", since="7.0.0"),
        _one_key("pexpiretime", 2, "When a key ends, in milliseconds.", since="7.0.0"),
        _one_key("persist", 2, "Let a key live until it is evicted.", flags=_CHANGE,
                 since="2.2.0"),
    )
)  # fmt: skip

_WALKS = (
    Command("dbsize", 1, "How many keys.", _READ),
    Command(
        "scan", -2, "Walk over the keys.", _LOOK,
        "cursor [MATCH pattern] [COUNT number] [TYPE string]", group="generic", since="2.8.0",
        differs="a walk sees the keys that were there when it began; at most 16 at once, the "
        "oldest is forgotten; a pattern has at most 1,024 bytes, COUNT counts up to 10,000",
    ),
    Command("keys", 2, "Keys which match a pattern.", _LOOK, "pattern", group="generic",
           differs="others are served meanwhile; a pattern has at most 1,024 bytes"),
)  # fmt: skip

_NODE = (
    Command("info", -1, "Facts about this node.", _ANYTIME, "[section ...]"),
    Command("time", 1, "The node's clock: seconds and microseconds.", (*_ANYTIME, "fast"),
           since="2.6.0"),
    _container(
        "config",
        "Read the settings.",
        (
            Command("get", -3, "Settings which match patterns.", _ADMIN, "pattern [pattern ...]",
                   since="2.0.0", differs="at most 64 patterns, of 1,024 bytes each"),
        ),
        since="2.0.0",
        differs="settings are given on the command line: no SET, REWRITE, RESETSTAT",
    ),
    _container(
        "memory",
        "What a key costs.",
        (
            Command("usage", -3, "Bytes of the capacity a key takes.", _LOOK,
                    "key [SAMPLES number]", first_key=2, last_key=2, step=1, since="4.0.0"),
        ),
        since="4.0.0",
        differs="the node's own accounting; no DOCTOR, STATS, PURGE",
    ),
    _container(
        "acl",
        "Who is asking.",
        (Command("whoami", 2, "The user of this connection.", _CLIENT, since="6.0.0"),),
        since="6.0.0",
        differs="users are given on the command line",
    ),
    replace(
        _container(
            "command",
            "This table.",
            (
                Command("count", 2, "How many commands.", _ANYTIME, since="2.8.13"),
                Command("docs", -2, "What commands are for.", _ANYTIME, "[name ...]",
                       since="7.0.0", differs="no complexity; syntax as one text"),
                Command("getkeys", -3, "The keys among a command's words.", _ANYTIME,
                       "command [word ...]", since="2.8.13"),
                Command("info", -2, "Arity, flags and key positions.", _ANYTIME, "[name ...]",
                       since="2.8.13"),
                Command("list", -2, "The names.", _ANYTIME, since="7.0.0",
                       differs="no FILTERBY"),
            ),
            since="2.8.13",
            differs="no ACL categories, tips or key specifications",
        ),
        arity=-1,
        flags=_ANYTIME,
    ),
    Command("flushall", -1, "Drop everything.", _DROP, "[ASYNC | SYNC]",
           differs="refused unless the node was started with `--allow-flush`"),
    Command("flushdb", -1, "The same as FLUSHALL.", _DROP, "[ASYNC | SYNC]",
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
