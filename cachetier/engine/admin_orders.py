"""Admin commands: flush a namespace, resize, drain.

A request is validated as a whole before it has any effect; errors name the field and the fix. If
the node has a password, commands require it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from cachetier.engine.config import MIB, parse_size
from cachetier.engine.errors import ConfigError
from cachetier.engine.handover import DEFAULT_RATE, HandoverRunningError
from cachetier.engine.net.access import LoginVerdict
from cachetier.engine.node import Node
from cachetier.engine.store import Declined

AdminReply = tuple[int, dict[str, Any]]
_BEARER: Final = "bearer "


class AdminCommandError(Exception):
    def __init__(self, status: int, code: str, detail: str, field: str | None = None) -> None:
        super().__init__(detail)
        self.reply: AdminReply = status, {"code": code, "field": field, "detail": detail}


class AdminCommands:
    """Admin commands; `on_drain` is called once per drain."""

    def __init__(self, node: Node, on_drain: Callable[[], None]) -> None:
        self._node = node
        self._on_drain = on_drain
        self._known: dict[
            str, tuple[tuple[str, ...], Callable[[Mapping[str, str]], AdminReply]]
        ] = {
            "/flush": (("namespace",), self._flush),
            "/resize": (("memory",), self._resize),
            "/drain": (("to", "rate"), self._drain),
        }

    def __contains__(self, path: str) -> bool:
        return path in self._known

    def give(self, path: str, query: Mapping[str, str], bearer: str, host: str) -> AdminReply:
        """Execute a command. `bearer` is the Authorization header, `host` the client's address."""
        fields, order = self._known[path]
        try:
            self._check_bearer(bearer, host)
            for name in query:
                if name not in fields:
                    names = ", ".join(fields) or "none"
                    text = f"unknown parameter of {path}: {name!r}; use {names}"
                    raise AdminCommandError(400, "unknown_field", text, name[:64])
            return order(query)
        except AdminCommandError as exc:
            return exc.reply

    def _check_bearer(self, header: str, host: str) -> None:
        node = self._node
        if not node.config.passwords:
            if node.config.admin is not None and not node.config.admin.is_local:
                text = (
                    "this node has no password and its admin port is reachable "
                    "from other machines: start it with --password-file, or with "
                    "--admin 127.0.0.1:PORT"
                )
                raise AdminCommandError(403, "protected", text)
            return
        token = header[len(_BEARER) :] if header[: len(_BEARER)].lower() == _BEARER else ""
        # As for clients: any permitted user with this password.
        now = time.monotonic()
        verdict = node.gate.judge(host, node.gate.users[0].encode(), token.encode(), now)
        if verdict is LoginVerdict.LOCKED:
            wait = node.gate.wait_s(host, now)
            text = (
                f"too many wrong passwords: retry in {wait} s; the correct "
                "password is accepted immediately"
            )
            raise AdminCommandError(429, "locked", text, "authorization")
        if verdict is not LoginVerdict.OK:
            text = "send the node's password: `Authorization: Bearer PASSWORD`"
            raise AdminCommandError(401, "unauthorized", text, "authorization")

    def _flush(self, query: Mapping[str, str]) -> AdminReply:
        """Flush one namespace ("" = keys that are not blocks), or everything if unnamed."""
        namespace = query.get("namespace")
        dropped = self._node.store.clear(time.monotonic(), namespace)
        return 200, {"namespace": namespace, "dropped": dropped}

    def _resize(self, query: Mapping[str, str]) -> AdminReply:
        text = query.get("memory")
        if text is None:
            raise AdminCommandError(
                400, "missing", "missing size: use /resize?memory=4GiB", "memory"
            )
        try:
            size = parse_size(text)
        except ConfigError as exc:
            raise AdminCommandError(400, "invalid", str(exc), "memory") from None
        least = max([MIB, *self._node.config.quotas.values()])
        if size < least:
            why = f"{size} bytes are too few: at least {least} (1MiB, and every --quota)"
            raise AdminCommandError(400, "invalid", why, "memory")
        declined = self._node.resize(size, time.monotonic())
        if isinstance(declined, Declined):
            text = declined.detail or "not possible at the moment"
            raise AdminCommandError(409, declined.reason.value, text, "memory")
        usage = self._node.store.usage()
        return 200, {"capacity_bytes": usage.capacity_bytes, "used_bytes": usage.used_bytes}

    def _drain(self, query: Mapping[str, str]) -> AdminReply:
        """Reject new connections; with `to`, hand the most valuable values over to those nodes."""
        if "rate" in query and "to" not in query:
            raise AdminCommandError(400, "invalid", "rate requires to", "rate")
        if "to" not in query:
            self._on_drain()
            return 202, {"draining": True}
        field = "rate"
        try:
            rate = parse_size(query["rate"]) if "rate" in query else DEFAULT_RATE
            if rate < MIB:
                raise ConfigError("too slow: at least 1MiB (per second)")
            field = "to"
            begun = self._node.start_handover(query["to"], rate)
        except ConfigError as exc:
            raise AdminCommandError(400, "invalid", str(exc), field) from None
        except HandoverRunningError as exc:
            raise AdminCommandError(409, "already", str(exc), "to") from None
        self._on_drain()
        return 202, {"draining": True, "handover": begun.facts()}
