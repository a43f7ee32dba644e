"""The code that one panel's data passes through: how many files, and how often it comes back.

Counted are all files below dashboards/ of which a function runs in the request to the panel's data
URL: the Prometheus client and the annotations, too, but no declarations that run at import. A file
is entered again when another file than the first calls a function there that was not met before;
properties are read in passing.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

import dashboards
from dashboards.boards import answers
from dashboards.boards.results import targets
from tests.support.console import browser, make_endpoint
from tests.support.http_stub import Answer, http_stub

pytestmark = pytest.mark.django_db

FOLDER = f"{Path(dashboards.__file__).parent}/"
MAX_FILES, MAX_RETURNS = 10, 4


class Walk:
    """A profiler that notes files in their order and the callers by which each is entered."""

    def __init__(self) -> None:
        self.callers: dict[str, list[str]] = {}
        self._seen: set[CodeType] = set()

    @property
    def returns(self) -> list[str]:
        return [f"{caller} -> {file}" for file, all_ in self.callers.items() for caller in all_[1:]]

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        code = frame.f_code
        file = _file(code)
        if event != "call" or not file or code in self._seen:
            return
        self._seen.add(code)
        callers = self.callers.setdefault(file, [])
        outer = frame.f_back
        while outer is not None and not _file(outer.f_code):
            outer = outer.f_back
        caller = _file(outer.f_code) if outer is not None else ""
        if caller not in (file, *callers) and not _is_property(frame):
            callers.append(caller)


def _file(code: CodeType) -> str:
    name = code.co_filename
    return name.removeprefix(FOLDER) if name.startswith(FOLDER) else ""


def _is_property(frame: FrameType) -> bool:
    owner, _, name = frame.f_code.co_qualname.rpartition(".")
    held = getattr(frame.f_globals.get(owner), name, None)
    return isinstance(held, property) or frame.f_code.co_name.startswith("<gen")


def respond(path: str, _body: bytes) -> Answer:
    """Every query has one series: 1 at a moment, 1.5 over a window."""
    given = {name: values[0] for name, values in parse_qs(urlsplit(path).query).items()}
    if "start" in given:
        start, end, step = (int(float(given[name])) for name in ("start", "end", "step"))
        values = [[at, "1.5"] for at in range(start, end + 1, step)]
        labels = {"worker": "demo-0", "reason": "prefix_hit", "tier": "l1", "pod": "demo-0"}
        found: list[Any] = [{"metric": labels, "values": values}]
        return 200, {"status": "success", "data": {"resultType": "matrix", "result": found}}
    at = int(float(given["time"]))
    found = [{"metric": {"job": job}, "value": [at, "1"]} for job in ("vllm", "router", "l2")]
    return 200, {"status": "success", "data": {"resultType": "vector", "result": found}}


def walk(settings: Any, url: str) -> Walk:
    """Return the walk of a request in a process whose code and connections are in use."""
    viewer = browser("viewer")
    with http_stub({"/api/v1/query": respond, "/api/v1/query_range": respond}) as stub:
        settings.EMBERLINE = dataclasses.replace(settings.EMBERLINE, prometheus_url=stub.url)
        viewer.get(url)
        answers.CACHE.clear()
        targets.clear_memory()
        made = Walk()
        threading.setprofile(made)
        sys.setprofile(made)
        try:
            (panel,) = viewer.get(url).json()["panels"]
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    assert panel["state"] == "ok", panel
    return made


@pytest.mark.parametrize(("panel", "more"), [("ttft", 1), ("decisions", 0)])
def test_a_plain_panel_passes_few_files_and_returns_to_few(
    settings: Any, panel: str, more: int
) -> None:
    """`more`: evidence.py for percentiles, which have a value over the whole range."""
    make_endpoint("demo")
    found = walk(settings, f"/dashboards/endpoints/demo/data?panel={panel}")
    assert len(found.callers) <= MAX_FILES + more, list(found.callers)
    assert len(found.returns) <= MAX_RETURNS + more, found.returns
