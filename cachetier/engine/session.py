"""One client's conversation: requests in, replies out, no socket in sight.

`feed` executes whatever is complete and answers through `out`; it stops early when the client does
not take its replies, and goes on at the next `feed`. Everything wrong with a request is an error
reply; only what breaks the protocol ends the conversation (`closing`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from cachetier.engine.node import Node
from cachetier.engine.store import Value
from cachetier.wire import replies
from cachetier.wire.commands import TABLE, Command
from cachetier.wire.frames import (
    DIRECT_BYTES,
    Argument,
    Limits,
    ProtocolError,
    Refused,
    Request,
    RequestParser,
    limits_before_login,
)

log = logging.getLogger(__name__)

Out = Callable[[bytes | bytearray | memoryview], None]
# A handler whose reply may be long yields after each part of it, and is gone on with when the
# client has taken what was sent.
Rest = Iterator[None]
Handler = Callable[["Session", list[bytes]], Rest | None]


class CommandError(Exception):
    """The reply to a command which cannot be done; the text begins with Redis' code."""


class Session:
    """`out` takes reply bytes; `blocked` says whether the client is behind with taking them."""

    def __init__(
        self, node: Node, out: Out, handlers: dict[str, Handler], blocked: Callable[[], bool]
    ) -> None:
        self.node = node
        self.id = node.next_id()
        self.name = ""
        self.library: dict[str, str] = {}  # lib-name and lib-ver, as CLIENT SETINFO gave them
        self.version = 2
        self.logged_in = not node.config.password
        self.closing = False
        self.last_command = ""
        self.last_op = ""
        self.born_at = time.monotonic()
        self.value: Value | None = None  # of the write being executed
        self._rest: Rest | None = None
        self._small: list[bytes] = []
        self._out = out
        self._handlers = handlers
        self._blocked = blocked
        self._reserved = 0
        self.parser = RequestParser(self._limits(), self._reserve)

    # -- requests ------------------------------------------------------------------------------
    def feed(self) -> None:
        """Execute what has come (the bytes are in the parser already)."""
        try:
            while not self.closing and not self._blocked():
                if self._rest is not None:
                    self._go_on(self._rest)
                    continue
                request = self.parser.next_request()
                if request is None:
                    break
                self._execute(request)
                self._release_all()
        except ProtocolError as exc:
            self.reply(replies.error(f"ERR Protocol error: {exc}"))
            self.closing = True
        self.flush()

    def close(self) -> None:
        """The connection is gone: give back what was being received."""
        self._release_all()

    def log_in(self) -> None:
        self.logged_in = True
        self.parser.limits = self._limits()

    def log_out(self) -> None:
        self.logged_in = not self.node.config.password
        self.name = ""
        self.version = 2
        self.parser.limits = self._limits()

    def _go_on(self, rest: Rest) -> None:
        for _ in rest:
            if self._blocked():
                return
        self._rest = None

    def _execute(self, request: Request) -> None:
        command = TABLE.get(_word(request[0]).lower())
        started = time.perf_counter()
        failed = True
        try:
            self._run(command, request)
            failed = False
        except CommandError as exc:
            self.reply(replies.error(str(exc)))
        except Exception:  # the session is the last catch-all: one request, not the node
            log.exception("command %s failed", command.name if command else "?")
            self.reply(replies.error("ERR internal error, see this node's log"))
        if command is not None and command.op:
            counters = self.node.counters
            counters.durations[command.op].observe(time.perf_counter() - started)
            if failed:
                counters.operations[command.op, "error"] += 1

    def _run(self, command: Command | None, request: Request) -> None:
        if command is None:
            raise CommandError(f"ERR unknown command '{_word(request[0])[:64]}'")
        if not self.logged_in and not command.before_login:
            raise CommandError("NOAUTH Authentication required.")
        if not command.accepts(len(request)):
            raise CommandError(f"ERR wrong number of arguments for '{command.name}' command")
        self.last_command, self.last_op = command.name, command.op
        self._refuse_dropped(request)
        self._rest = self._handlers[command.name](self, self._words(command, request))

    def _refuse_dropped(self, request: Request) -> None:
        config = self.node.config
        for argument in request:
            if isinstance(argument, Refused):
                self.node.counters.rejected[argument.reason] += 1
                if argument.reason == "too_large":
                    raise CommandError(
                        f"ERR a value of {argument.length} bytes is larger than this node takes "
                        f"({config.max_value_bytes} bytes)"
                    )
                raise CommandError("OOM too many bytes are being received at once, try again")

    def _words(self, command: Command, request: Request) -> list[bytes]:
        """The arguments; a write's value goes to `self.value` as it lies, uncopied."""
        self.value = None
        words: list[bytes] = []
        place = VALUE_PLACES.get(command.name, 0)
        for index, argument in enumerate(request[1:], 1):
            if index == place and not isinstance(argument, Refused):
                self.value = argument
                words.append(b"")
            else:
                words.append(_as_bytes(argument))
        return words

    # -- replies -------------------------------------------------------------------------------
    def reply(self, data: bytes) -> None:
        self._small.append(data)

    def reply_value(self, value: Value | None) -> None:
        """A bulk string; a long one is sent from where it lies."""
        if value is None:
            self.reply(replies.null(self.version))
            return
        self.node.counters.read_bytes += len(value)
        if len(value) < DIRECT_BYTES:
            self.reply(replies.bulk(value))
            return
        self.reply(replies.bulk_head(len(value)))
        self.flush()
        self._out(value)
        self.reply(b"\r\n")

    def flush(self) -> None:
        if self._small:
            self._out(b"".join(self._small))
            self._small.clear()

    # -- memory being received -----------------------------------------------------------------
    def _limits(self) -> Limits:
        if not self.logged_in:
            return limits_before_login()
        config = self.node.config
        return Limits(
            max_value_bytes=config.max_value_bytes,
            max_request_bytes=config.max_value_bytes + 64 * DIRECT_BYTES,
        )

    def _reserve(self, count: int) -> bool:
        if not self.node.reserve(count):
            return False
        self._reserved += count
        return True

    def _release_all(self) -> None:
        if self._reserved:
            self.node.release(self._reserved)
            self._reserved = 0


# Which word of a command is a value to keep rather than a word to read.
VALUE_PLACES = {"set": 2, "setnx": 2, "setex": 3, "psetex": 3}


def _word(argument: Argument) -> str:
    return "" if isinstance(argument, Refused) else bytes(argument[:256]).decode(errors="replace")


def _as_bytes(argument: Argument) -> bytes:
    return b"" if isinstance(argument, Refused) else bytes(argument)
