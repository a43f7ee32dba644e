"""Prometheus metrics of the console's processes.

Base units, bounded labels (a route's pattern, never a path) and the same metric texts in all three
programs; metrics of another program are absent. Counting never raises.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib import metadata

import psutil

from console.core import counters
from console.processkit import descriptors
from console.processkit.metrics import Registry

PREFIX = "emberline_console_"
HTTP_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
TASK_BOUNDS = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 15.0, 60.0)
_TEXTS = {
    "task_runs": "Background tasks finished, by outcome.",
    "task_nudges": "Requests to run a task soon, by outcome.",
    "http_requests": "HTTP requests, by route and status.",
    "uses_unrecorded": "Uses of a session or token whose time could not be stored.",
    "beat_ticks": "Scheduler ticks.",
    "broker_scripts_ended": "Scripts ended because they kept the broker busy, by how.",
    "beat_skips": "Scheduled tasks not sent, since they had no work.",
    "change_notices": "Announced changes of processes, by kind of owner.",
    "cluster_watches_lost": "Interrupted watches of clusters, by kind of object and reason.",
}
Collector = Callable[[Registry], None]
_collectors: dict[str, list[Collector]] = {}
_lock = threading.Lock()
_durations = Registry()
_process = psutil.Process()


def request_ended(method: str, route: str, status: int, seconds: float) -> None:
    counters.increment("http_requests", method=method, route=route, code=str(status))
    with _lock:
        _durations.histogram(
            f"{PREFIX}http_request_seconds",
            "Time to response headers (s).",
            HTTP_BOUNDS,
            method=method,
            route=route,
        ).observe(seconds)


def task_ended(task: str, seconds: float) -> None:
    with _lock:
        _durations.histogram(
            f"{PREFIX}task_seconds", "Duration of background tasks (s).", TASK_BOUNDS, task=task
        ).observe(seconds)


def add_metrics(program: str, collect: Collector) -> None:
    """Add metrics to a program's port. `collect` must not raise or block."""
    _collectors.setdefault(program, []).append(collect)


def render(program: str, gauges: Mapping[str, tuple[str, float]]) -> str:
    """Return the exposition; `gauges` maps a name to its help text and current value."""
    registry = Registry()
    version = _version()
    registry.gauge(
        f"{PREFIX}info", "Component and version; always 1.", program=program, version=version
    ).set(1)
    registry.gauge(
        f"{PREFIX}time_seconds", "Time of this response (Unix time, s).", program=program
    ).set(time.time())
    for name, labels, number in counters.snapshot():
        text = _TEXTS.get(name, "Counted by the console.")
        registry.counter(f"{PREFIX}{name}_total", text, **labels).set(number)
    for name, (text, value) in gauges.items():
        registry.gauge(f"{PREFIX}{name}", text).set(value)
    for collect in _collectors.get(program, ()):
        collect(registry)
    _own(registry)
    with _lock:
        return registry.render() + _durations.render()


def _own(registry: Registry) -> None:
    cpu = _process.cpu_times()
    seconds = registry.counter("process_cpu_seconds_total", "CPU time, user and system (s).")
    seconds.set(cpu.user + cpu.system)
    memory = registry.gauge(
        "process_resident_memory_bytes", "Resident memory of the process (bytes)."
    )
    memory.set(_process.memory_info().rss)
    started = registry.gauge(
        "process_start_time_seconds", "Start time of the process (Unix time, s)."
    )
    started.set(_process.create_time())
    registry.gauge("process_open_fds", "Open files and sockets.").set(_process.num_fds())
    registry.gauge("process_max_fds", "Limit of open files and sockets.").set(descriptors.limit())
    registry.gauge("process_threads", "Threads.").set(_process.num_threads())


def _version() -> str:
    try:
        return metadata.version("emberline")
    except metadata.PackageNotFoundError:  # run from a folder, not installed
        return os.environ.get("EMBERLINE_VERSION", "unknown")
