"""The commands a cache node understands, as data: dispatch, arity, help and metric labels.

Promises that a command exists in one place only: the session looks its handler up by `name`, the
`COMMAND` reply and the documentation are made from this table. `arity` counts the name itself; a
negative one means "at least". `op` is the label of emberline_l2_operations_total ("" = not
counted); `first_key`, `last_key`, `step` are Redis' key positions.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    name: str
    arity: int
    summary: str
    flags: tuple[str, ...] = ("fast",)
    op: str = ""
    first_key: int = 0
    last_key: int = 0
    step: int = 0
    before_login: bool = False

    def accepts(self, count: int) -> bool:
        """Whether `count` words, the name among them, are the right number."""
        return count == self.arity if self.arity >= 0 else count >= -self.arity


def _one_key(
    name: str, arity: int, summary: str, op: str = "", flags: tuple[str, ...] = ("readonly", "fast")
) -> Command:
    return Command(name, arity, summary, flags, op, 1, 1, 1)


def _many_keys(
    name: str, summary: str, op: str, flags: tuple[str, ...] = ("readonly", "fast")
) -> Command:
    return Command(name, -2, summary, flags, op, 1, -1, 1)


_WRITE = ("write", "denyoom")
_OPEN = ("fast", "noscript", "no_auth")

TABLE: dict[str, Command] = {
    command.name: command
    for command in (
        # connection
        Command("ping", -1, "Answer PONG, or the word given."),
        Command("echo", 2, "Answer the word given."),
        Command("hello", -1, "Choose the protocol version, log in.", _OPEN, before_login=True),
        Command("auth", -2, "Give the password.", _OPEN, before_login=True),
        Command("quit", -1, "Close this connection.", _OPEN, before_login=True),
        Command("select", 2, "Choose a database; there is only 0."),
        Command("client", -2, "SETNAME, SETINFO, GETNAME, ID, INFO and LIST of connections."),
        Command("reset", 1, "Forget this connection's name and login.", _OPEN, before_login=True),
        # values
        _many_keys("exists", "How many of the keys are there.", "exists"),
        _one_key("get", 2, "The value of a key.", "get"),
        _many_keys("mget", "The values of keys.", "get"),
        _one_key("set", -3, "Store a value: EX, PX, NX, XX.", "put", _WRITE),
        _one_key("setex", 4, "Store a value for some seconds.", "put", _WRITE),
        _one_key("psetex", 4, "Store a value for some milliseconds.", "put", _WRITE),
        _one_key("setnx", 3, "Store a value unless the key is there.", "put", _WRITE),
        _many_keys("del", "Drop keys.", "delete", ("write",)),
        _many_keys("unlink", "Drop keys (the same as DEL here).", "delete", ("write", "fast")),
        _one_key("ttl", 2, "Seconds a key still has: -1 for ever, -2 no such key."),
        _one_key("pttl", 2, "Milliseconds a key still has."),
        _one_key("expire", 3, "Give a key so many seconds.", flags=("write", "fast")),
        _one_key("pexpire", 3, "Give a key so many milliseconds.", flags=("write", "fast")),
        _one_key("persist", 2, "Let a key live until it is evicted.", flags=("write", "fast")),
        _one_key("strlen", 2, "The length of a value, without reading it as a use."),
        _one_key("getrange", 4, "Part of a value.", "get", ("readonly",)),
        _one_key("type", 2, "string, or none."),
        _many_keys("touch", "Count as a use; how many of the keys are there.", "exists"),
        # the node
        Command("dbsize", 1, "How many keys.", ("readonly", "fast")),
        Command("scan", -2, "Walk over the keys: MATCH, COUNT.", ("readonly",)),
        Command("keys", 2, "Keys which match a pattern.", ("readonly",)),
        Command("info", -1, "Facts about this node.", ("loading", "stale")),
        Command("config", -2, "GET of the settings; they are set on the command line.", ("admin",)),
        Command("command", -1, "This table: COUNT, INFO, DOCS.", ("loading", "stale")),
        Command("flushall", -1, "Drop everything; only where the operator allowed it.", _WRITE),
        Command("flushdb", -1, "The same as FLUSHALL.", _WRITE),
    )
}

# Every label value of emberline_l2_operations_total{op=}.
OPERATIONS: tuple[str, ...] = ("get", "put", "exists", "delete")
