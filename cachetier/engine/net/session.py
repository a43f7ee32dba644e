"""Client session: executes requests and produces replies. Sans-I/O.

`feed` executes complete requests and replies through `out`; it stops while the client does not read
and continues at the next `feed`. Invalid requests get error replies; only protocol violations end
the session (`closing`).

Long values are received into the store's reservation and sent from where they are stored, pinned
until sent, without copies.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from time import monotonic
from typing import Final, Protocol

from cachetier.engine.net.guards import DEFAULT_USER
from cachetier.engine.node import Node
from cachetier.engine.store import (
    Condition,
    Declined,
    DeclineReason,
    DiskValue,
    Hold,
    WriteReservation,
)
from cachetier.wire import envelope, replies
from cachetier.wire.commands import TABLE, Command
from cachetier.wire.frames import (
    DIRECT_BYTES,
    Argument,
    Buffer,
    HttpError,
    Landing,
    Limits,
    ProtocolError,
    RefusedFrame,
    Request,
    RequestParser,
    limits_before_login,
)

log = logging.getLogger(__name__)

# Limit of a request's words other than values: keys, patterns, names.
_MAX_WORDS_BYTES: Final = 4 * 1024 * 1024
# Time slice of one client's requests while others wait.
_TURN_S = 0.01


class ReplyOutput(Protocol):
    def write(self, data: bytes) -> None: ...

    def send(self, value: Hold | DiskValue) -> None:
        """Send the value's bytes and CR LF; takes ownership, releases it once sent or dropped."""
        ...

    def pending(self) -> int: ...

    def is_behind(self) -> bool:
        """Return whether to produce no more replies: slow client, or paused."""
        ...

    def pause(self) -> None:
        """Stop reading and producing replies until `resume`."""
        ...

    def resume(self) -> None:
        """Continue, if the client is still connected."""
        ...


# Handler of a long reply: yields after each part and continues when the client has read it.
ReplySteps = Generator[None, None, None]
Handler = Callable[["ClientSession", list[bytes]], ReplySteps | None]


class CommandError(Exception):
    """Error reply of a command; the text starts with Redis' code."""


class ClientSession:
    def __init__(self, node: Node, out: ReplyOutput, handlers: dict[str, Handler]) -> None:
        self.node = node
        self.id = node.next_id()
        self.user = DEFAULT_USER
        self.name = ""
        # Both addresses as host:port, the peer's host, and a callback that closes the connection;
        # set by the socket's owner.
        self.peer = self.local = self.host = ""
        self.hang_up: Callable[[], None] = lambda: None
        self.library: dict[str, str] = {}  # lib-name and lib-ver from CLIENT SETINFO
        self.version = 2
        self.logged_in = not node.config.passwords
        self.closing = False
        self.last_command = ""
        self.last_op = ""
        self.born_at = self.active_at = self.moved_at = monotonic()
        self.seen_progress = (0, 0)
        self.value: Argument | None = None  # of the write being executed
        self._rest: ReplySteps | None = None
        self._is_stepping = False  # the reply in progress is running, and ends by itself
        self._small: list[bytes] = []
        self.out = out
        self._handlers = handlers
        self._reserved = 0
        self._turn_ends_at = 0.0
        self._ended_at = 0.0  # latest request
        self._rooms: list[WriteReservation] = []  # of the request being received
        self.parser = RequestParser(self._limits(), self._land)

    def feed(self) -> None:
        """Execute the complete requests in the parser."""
        self.moved_at = monotonic()
        self._turn_ends_at = self.moved_at + _TURN_S
        try:
            while not self.closing and not self.out.is_behind():
                if self._rest is not None:
                    self._go_on(self._rest)
                    continue
                request = self.parser.next_request()
                if request is None:
                    break
                self._execute(request)
                if self._rooms or self._reserved:
                    self._release_all()
                if self._ended_at > self._turn_ends_at:
                    self._give_way()
        except ProtocolError as exc:
            if isinstance(exc, HttpError):
                self.node.http_came(self.peer)
            self.reply(replies.error(f"ERR Protocol error: {exc}"))
            self.closing = True
        self.flush()

    def _give_way(self) -> None:
        """Yield to other clients during many requests or a long one."""
        if monotonic() > self._turn_ends_at and not self.out.is_behind():
            self.out.pause()
            self.node.soon(self.out.resume)

    def close(self) -> None:
        """Release reservations and what a reply in progress holds, after the connection closed."""
        rest, self._rest = self._rest, None
        if rest is not None and not self._is_stepping:
            rest.close()
        self._release_all()
        self.node.leases.end_all(self.id)

    def log_in(self, user: str) -> None:
        self.user = user
        self.logged_in = True
        self.parser.limits = self._limits()

    def log_out(self) -> None:
        self.logged_in = not self.node.config.passwords
        self.user = DEFAULT_USER
        self.name = ""
        self.version = 2
        self.parser.limits = self._limits()

    def is_between_requests(self) -> bool:
        return self._rest is None and self.parser.is_idle and not self.out.pending()

    def progress(self) -> tuple[int, int]:
        """Return a value that changes while bytes of a long transfer move."""
        return self.parser.missing, self.out.pending()

    def _go_on(self, rest: ReplySteps) -> None:
        self._is_stepping = True
        try:
            for _ in rest:
                self._give_way()
                if self.out.is_behind():
                    return
        except MemoryError:
            self.node.shortage.failed()
            self.closing = True
        except Exception:  # as in `_execute`, but a partial reply can only end with the connection
            log.exception(
                "Command %s failed during its reply; closing the connection", self.last_command
            )
            self.closing = True
        finally:
            self._is_stepping = False
        self._rest = None

    def _execute(self, request: Request) -> None:
        command = _find_command(request[0])
        started = monotonic()
        failed = True
        try:
            self._run(command, request, started)
            failed = False
        except CommandError as exc:
            self.reply(replies.error(str(exc)))
        except MemoryError:
            self.node.shortage.failed()
            self.reply(replies.error("OOM the system gives this node no more memory"))
        except Exception:  # last resort: fail the request, not the node
            log.exception("Command %s failed", command.name if command else "?")
            self.reply(replies.error("ERR internal error, see this node's log"))
        self._ended_at = monotonic()
        if command is None:
            return
        took_s = self._ended_at - started
        calls = self.node.calls[command.name]
        calls.count += 1
        calls.seconds += took_s
        calls.failed += failed
        if command.op:
            counters = self.node.counters
            counters.durations[command.op].observe(took_s)
            if failed:
                counters.operations[command.op, "error"] += 1

    def _run(self, command: Command | None, request: Request, started: float) -> None:
        if command is None:
            raise CommandError(_unknown_command_error(request))
        if not self.logged_in and not command.before_login:
            raise CommandError("NOAUTH Authentication required.")
        if not command.accepts(len(request)):
            raise CommandError(f"ERR wrong number of arguments for '{command.name}' command")
        self.last_command, self.last_op = command.name, command.op
        self.active_at = started
        self._rest = self._handlers[command.name](self, self._words(command, request))

    def _words(self, command: Command, request: Request) -> list[bytes]:
        """Return the arguments; a write's value stays uncopied in `self.value`.

        A value discarded because of the key's state is left to the handler; other discarded
        arguments raise.
        """
        place = VALUE_ARGUMENTS.get(command.name, 0)
        self.value = request[place] if 0 < place < len(request) else None
        words: list[bytes] = []
        for index in range(1, len(request)):
            argument = request[index]
            if isinstance(argument, RefusedFrame) and argument.reason not in (
                DeclineReason.EXISTS,
                DeclineReason.ABSENT,
            ):
                raise self.refusal(argument.reason, argument.length, argument.detail)
            words.append(b"" if index == place else _as_bytes(argument))
        return words

    def refusal(self, reason: str, length: int, detail: str) -> CommandError:
        self.node.counters.rejected[reason] += 1
        if reason == DeclineReason.TOO_LARGE:
            if detail:
                return CommandError(f"ERR {detail}")
            most = self.node.config.max_value_bytes
            return CommandError(
                f"ERR a value of {length} bytes exceeds this node's limit ({most} bytes)"
            )
        if reason == DeclineReason.BACKPRESSURE:
            return CommandError(f"OOM {detail}, try again")
        return CommandError(f"OOM not stored: {detail or reason}")

    def reply(self, data: bytes) -> None:
        self._small.append(data)

    def reply_value(self, value: Hold | DiskValue | None) -> None:
        """Reply with a bulk string; long values are sent uncopied. Takes ownership of the hold."""
        if value is None:
            self.reply(replies.null(self.version))
            return
        length = value.length
        self.node.counters.read_bytes += length
        if length < DIRECT_BYTES and isinstance(value, Hold):
            self.reply(replies.bulk(value.tobytes()))
            value.release()
            return
        self.reply(replies.bulk_head(length))
        self.flush()
        self.out.send(value)

    def flush(self) -> None:
        if self._small:
            self.out.write(b"".join(self._small))
            self._small.clear()

    def _limits(self) -> Limits:
        if not self.logged_in:
            return limits_before_login()
        config = self.node.config
        return Limits(
            max_value_bytes=config.max_value_bytes,
            max_request_bytes=config.max_value_bytes + 64 * DIRECT_BYTES,
        )

    def _land(self, before: Request, length: int) -> Landing | RefusedFrame:
        """Return a landing for a long word: in the store for a value, else in plain memory."""
        command = _find_command(before[0]) if before else None
        if command is not None and VALUE_ARGUMENTS.get(command.name, 0) == len(before):
            return self._room(command.name, _as_bytes(before[1]), length)
        if self._reserved + length > _MAX_WORDS_BYTES:
            text = f"request arguments other than the value exceed {_MAX_WORDS_BYTES} bytes"
            return RefusedFrame(DeclineReason.TOO_LARGE, length, text)
        if not self.node.reserve(length):
            return RefusedFrame(
                DeclineReason.BACKPRESSURE, length, "too many bytes are being received at once"
            )
        self._reserved += length
        return Buffer(length)

    def _room(self, name: str, key: bytes, length: int) -> Landing | RefusedFrame:
        """Reserve space for a value before its options are known.

        Blocks need no options: keys are content-addressed, so an existing one is not received
        again.
        """
        once = name == "setnx" or key.startswith(envelope.PREFIX)
        condition = Condition.ABSENT if once else Condition.ALWAYS
        room = self.node.store.room(key, length, monotonic(), condition)
        if isinstance(room, Declined):
            return RefusedFrame(room.reason, length, room.detail)
        self._rooms.append(room)
        return room

    def take_room(self) -> WriteReservation:
        return self._rooms.pop()

    def _release_all(self) -> None:
        if self._reserved:
            self.node.release(self._reserved)
            self._reserved = 0
        for room in self._rooms:
            room.abandon()
        self._rooms.clear()


# Index of the value argument, per command.
VALUE_ARGUMENTS: Final = {"set": 2, "setnx": 2, "setex": 3, "psetex": 3}


_MAX_SHOWN: Final = 128
# Commands as clients spell them.
_COMMANDS: Final = {
    spelling.encode(): command
    for name, command in TABLE.items()
    for spelling in (name, name.upper())
}


def _unknown_command_error(request: Request) -> str:
    """Return Redis' error text, which clients parse to detect missing commands."""
    words = ""
    for argument in request[1:]:
        if len(words) >= _MAX_SHOWN:
            break
        words += f"'{_word(argument)[: _MAX_SHOWN - len(words)]}' "
    name = _word(request[0])[:_MAX_SHOWN]
    return f"ERR unknown command '{name}', with args beginning with: {words}"


def _find_command(word: Argument) -> Command | None:
    command = _COMMANDS.get(word) if isinstance(word, bytes) else None
    return command or TABLE.get(_word(word).lower())


def _word(argument: Argument) -> str:
    return argument[:256].decode(errors="replace") if isinstance(argument, bytes) else ""


def _as_bytes(argument: Argument) -> bytes:
    if isinstance(argument, bytes):
        return argument
    return b"" if isinstance(argument, RefusedFrame) else b"".join(argument.views)
