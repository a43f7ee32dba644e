"""`emberline top`: live state of endpoints and workers in a terminal, or one frame for a script.

Metrics are the current values of the Overview board; worker load is read from the routers.
"""

from __future__ import annotations

import os
import re
import select
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TextIO

from console.client.errors import EmberlineError
from console.commandline import output
from console.commandline.context import USAGE, CommandContext, CommandError
from console.commandline.verbs import OUTPUT, Verbs

MAX_ENDPOINTS = 20  # each needs two requests per frame
INTERVAL_S = 5.0
_POLL_S = 0.25  # reaction time to keys and to a resized terminal
_BOARD, _TTFT = "overview", "ttft"
_FLEET_PANELS = {"requests_s": "requests", "hit_rate": "reuse", "queued": "waiting"}
_GREEN, _YELLOW, _RED, _BOLD, _END = "\x1b[32m", "\x1b[33m", "\x1b[31m", "\x1b[1m", "\x1b[0m"
_COLORS = {
    **dict.fromkeys(("Ready", "up"), _GREEN),
    **dict.fromkeys(("Failed", "Unavailable", "down"), _RED),
    **dict.fromkeys(("Degraded", "Provisioning", "Updating"), _YELLOW),
    **dict.fromkeys(("Pending", "Deleting", "draining"), _YELLOW),
}
_STATE = re.compile(rf"(?<=  )(?:{'|'.join(_COLORS)})(?=  |$)")
_HIDE, _SHOW = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


@dataclass(slots=True)
class Collector:
    """Reads frames; workers' requests/s are derived from the previous frame."""

    context: CommandContext
    _served: dict[str, tuple[float, int]] = field(default_factory=dict)

    def frame(self) -> dict[str, Any]:
        listed = self._endpoints()
        visible = listed[:MAX_ENDPOINTS]
        metrics, problem = self._fleet_metrics() if visible else ({}, "")
        rows = [self._endpoint(endpoint, metrics) for endpoint in visible]
        return {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "endpoints": rows,
            "not_shown": len(listed) - len(visible),
            "problem": problem,
        }

    def _endpoints(self) -> list[dict[str, Any]]:
        name = self.context.options["name"]
        if name:
            return [self.context.client.get("endpoints", name)]
        return list(self.context.client.pages("endpoints"))

    def _board(self, panel: str, endpoint: str = "") -> dict[str, Any]:
        """Return the latest 15 minutes of a panel, for all endpoints or for one."""
        query = {"panel": panel, "endpoint": endpoint, "range": "15m"}
        board: dict[str, Any] = self.context.client.get("boards", _BOARD, **query)
        return board

    def _fleet_metrics(self) -> tuple[dict[str, dict[str, float]], str]:
        """Return the latest value by metric and endpoint, and why values are missing."""
        metrics: dict[str, dict[str, float]] = {}
        problem = ""
        for metric, panel in _FLEET_PANELS.items():
            try:
                board = self._board(panel)
            except EmberlineError as error:
                return metrics, str(error)
            fault = board["fault"]
            problem = problem or (f"{fault['title']} {fault['text']}" if fault else "")
            metrics[metric] = _latest_values(board)
        return metrics, problem

    def _endpoint(
        self, one: dict[str, Any], metrics: Mapping[str, Mapping[str, float]]
    ) -> dict[str, Any]:
        name = one["name"]
        workers = self._workers(one)
        in_flight = sum(worker["in_flight"] for worker in workers) if workers else None
        return {
            "name": name,
            "phase": one["phase"],
            "ready": one["ready_replicas"],
            "replicas": one["wanted_replicas"],
            **{metric: metrics.get(metric, {}).get(name) for metric in _FLEET_PANELS},
            "ttft_p90_s": self._ttft(one) if metrics else None,
            "in_flight": in_flight,
            "workers": workers,
        }

    def _ttft(self, one: dict[str, Any]) -> float | None:
        if not one["ready_replicas"]:
            return None
        try:
            board = self._board(_TTFT, one["name"])
        except EmberlineError:
            return None
        return next((v for name, v in _latest_values(board).items() if "p90" in name), None)

    def _workers(self, one: dict[str, Any]) -> list[dict[str, Any]]:
        if not one["url"]:
            return []
        try:
            workers = self.context.client.get("endpoints", one["name"], "routing")["workers"]
        except EmberlineError:  # the router does not respond
            return []
        columns = ("id", "state", "in_flight", "in_flight_tokens", "served", "failures")
        return [
            {**{name: worker[name] for name in columns}, "requests_s": self._rate(worker)}
            for worker in workers
        ]

    def _rate(self, worker: Mapping[str, Any]) -> float | None:
        now, served = time.monotonic(), int(worker["served"])
        before, counted = self._served.get(worker["id"], (now, served))
        self._served[worker["id"]] = (now, served)
        if now <= before or served < counted:  # the first frame, or a restarted router
            return None
        return (served - counted) / (now - before)


def _latest_values(board: Mapping[str, Any]) -> dict[str, float]:
    """Return the last measured value of each line."""
    lines = [line for panel in board["panels"] for line in panel["lines"]]
    latest_values = {}
    for line in lines:
        values = [value for value in line["values"][-3:] if value is not None]
        if values:
            latest_values[str(line["name"])] = float(values[-1])
    return latest_values


def format_frame(frame: Mapping[str, Any], *, console: str = "", every_s: float = 0.0) -> str:
    rows = frame["endpoints"]
    every = f"  every {every_s:g} s, q: quit" if every_s else ""
    lines = [
        f"{output.format_time(frame['time'])} UTC  {console}{every}".rstrip(),
        _summary(rows),
        *([f"Metrics unavailable: {frame['problem']}"] if frame["problem"] else []),
        "",
        output.table(_HEAD, map(_endpoint_cells, rows)) if rows else "No endpoints.",
    ]
    if frame["not_shown"]:
        lines.append(f"{frame['not_shown']} more endpoints; name one: emberline top NAME")
    workers = [worker for row in rows for worker in row["workers"]]
    if workers:
        lines += ["", output.table(_WORKER_HEAD, map(_worker_cells, workers))]
    return "\n".join(lines)


_HEAD = (
    *("ENDPOINT", "PHASE", "READY", "REQUESTS/S", "TTFT P90", "HIT RATE", "IN FLIGHT"),
    "QUEUED",
)
_WORKER_HEAD = (
    *("WORKER", "STATE", "IN FLIGHT", "QUEUED TOKENS", "REQUESTS/S", "SERVED"),
    "FAILED ATTEMPTS",
)


def _summary(rows: list[dict[str, Any]]) -> str:
    ready = sum(row["phase"] == "Ready" for row in rows)
    workers = sum(row["ready"] for row in rows), sum(row["replicas"] for row in rows)
    return (
        f"Endpoints Ready {ready}/{len(rows)}  Workers ready {workers[0]}/{workers[1]}  "
        f"Requests/s {_number(_total(rows, 'requests_s'))}  "
        f"In flight {_number(_total(rows, 'in_flight'), 0)}  "
        f"Queued {_number(_total(rows, 'queued'), 0)}"
    )


def _total(rows: list[dict[str, Any]], name: str) -> float | None:
    values = [row[name] for row in rows if row[name] is not None]
    return sum(values) if values else None


def _endpoint_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    hit = row["hit_rate"]
    return (
        row["name"],
        row["phase"],
        f"{row['ready']}/{row['replicas']}",
        _number(row["requests_s"]),
        output.format_seconds(row["ttft_p90_s"]),
        "-" if hit is None else f"{100 * hit:.0f} %",
        _number(row["in_flight"], 0),
        _number(row["queued"], 0),
    )


def _worker_cells(worker: Mapping[str, Any]) -> tuple[str, ...]:
    counts = (worker["served"], worker["failures"])
    return (
        worker["id"],
        worker["state"],
        str(worker["in_flight"]),
        f"{worker['in_flight_tokens']:,}",
        _number(worker["requests_s"]),
        *(f"{count:,}" for count in counts),
    )


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def paint(text: str, size: os.terminal_size, *, colors: bool) -> str:
    """Cut a frame to the terminal and mark heads and states by colour."""
    lines = [line[: size.columns] for line in text.splitlines()]
    if len(lines) > size.lines:
        hidden = len(lines) - size.lines + 1
        lines = [*lines[: size.lines - 1], f"… {hidden} more lines"[: size.columns]]
    if not colors:
        return "\n".join(lines)
    heads = (_HEAD[0], _WORKER_HEAD[0])
    return "\n".join(
        f"{_BOLD}{line}{_END}"
        if line.startswith(heads)
        else _STATE.sub(lambda found: f"{_COLORS[found[0]]}{found[0]}{_END}", line, count=1)
        for line in lines
    )


def top(context: CommandContext) -> Any:
    """Return one frame as a document or text, or show frames until the user quits."""
    interval = context.options["interval"]
    if not 1 <= interval <= 3600:
        raise CommandError(f"--interval {interval:g}: enter 1 to 3600 seconds.", USAGE)
    collector = Collector(context)
    form = context.options["output"]
    if form != output.TABLE:
        return output.format_data(collector.frame(), form)
    console = "local console" if context.here else context.client.url
    if context.options["once"]:
        return format_frame(collector.frame(), console=console)
    if sys.stdout.isatty():
        _Screen(collector, console, interval).run(sys.stdout)
        return ""
    while True:  # piped: one frame after the other
        context.out.write(f"{format_frame(collector.frame(), console=console)}\n\n")
        context.out.flush()
        context.client.pause(interval)


@dataclass(slots=True)
class _Screen:
    collector: Collector
    console: str
    interval_s: float

    def run(self, out: TextIO) -> None:
        text = self._text(self.collector.frame())  # the first failure ends the command
        colors = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
        with _raw_terminal(out):
            while True:
                size = _size()
                out.write(f"\x1b[H\x1b[2J{paint(text, size, colors=colors)}")
                out.flush()
                if self._wait(size) == "q":
                    return
                if size == _size():
                    text = self._next(text)

    def _text(self, frame: Mapping[str, Any]) -> str:
        return format_frame(frame, console=self.console, every_s=self.interval_s)

    def _next(self, text: str) -> str:
        """Return the next frame; while the console does not respond, the last one with why."""
        try:
            return self._text(self.collector.frame())
        except EmberlineError as error:
            reason = " ".join(str(error).split())
            lines = [line for line in text.splitlines() if not line.startswith(_STALE)]
            return "\n".join([f"{_STALE} {reason}", *lines])

    def _wait(self, size: os.terminal_size) -> str:
        """Return the key pressed, "" after the interval or when the terminal is resized."""
        end = time.monotonic() + self.interval_s
        while time.monotonic() < end and size == _size():
            if not sys.stdin.isatty():
                time.sleep(_POLL_S)
            elif select.select([sys.stdin], [], [], _POLL_S)[0]:
                key = os.read(sys.stdin.fileno(), 1).decode(errors="replace")
                return "q" if key in ("q", "Q", "") else key
        return ""


_STALE = "Stale data:"


def _size() -> os.terminal_size:
    """Return the current size; unlike shutil's, not the one COLUMNS and LINES had at the start."""
    terminal_size = os.get_terminal_size(sys.stdout.fileno())
    return (
        terminal_size
        if terminal_size.columns and terminal_size.lines
        else os.terminal_size((80, 24))
    )


@contextmanager
def _raw_terminal(out: TextIO) -> Iterator[None]:
    """Use the alternate screen and read single keys; restore the terminal in any case."""
    try:
        import termios
        import tty
    except ModuleNotFoundError:
        text = "The live view needs a POSIX terminal. Print one frame: emberline top --once"
        raise CommandError(text, USAGE) from None

    keys = sys.stdin.isatty()
    before = termios.tcgetattr(sys.stdin) if keys else []
    out.write(_HIDE)
    try:
        if keys:
            tty.setcbreak(sys.stdin)
        yield
    finally:
        if keys:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
        out.write(_SHOW)
        out.flush()


def add_top(rooms: Verbs) -> None:
    verb = rooms.verb(
        "top",
        "live view of endpoints and workers: hit rate, TTFT p90, queue, requests/s",
        call=top,
        form=OUTPUT,
    )
    verb.add("name", nargs="?", default="", metavar="ENDPOINT", help="only this endpoint")
    verb.add("--once", action="store_true", help="print one frame and exit; -o json|yaml does too")
    text = f"seconds between frames ({INTERVAL_S:g})"
    verb.add("--interval", type=float, default=INTERVAL_S, metavar="S", help=text)
