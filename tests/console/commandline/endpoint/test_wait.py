"""Progress that is printed while waiting for an endpoint."""

from __future__ import annotations

import io
from typing import Any

import httpx

from console.client import Client
from console.commandline.context import CommandContext
from console.commandline.endpoint.wait import wait_until_phase


def state(observed: int, message: str) -> dict[str, Any]:
    step = {"code": "Accepted", "state": "done", "message": message}
    return {
        "name": "demo",
        "phase": "Ready",
        "url": "http://r",
        "public_url": "",
        "steps": [step],
        "generation": 2,
        "observed_generation": observed,
    }


def test_steps_of_the_revision_before_are_not_printed() -> None:
    states = [state(1, "before"), state(1, "before"), state(2, "after")]

    def answer(_request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=states.pop(0) if len(states) > 1 else states[0])

    def connect() -> Client:
        client = Client("http://console", transport=httpx.MockTransport(answer), live=False)
        client.pause = lambda _seconds: None
        return client

    err = io.StringIO()
    context = CommandContext({"timeout": 30.0}, io.StringIO(), err, connect)
    assert wait_until_phase(context, "demo", "Ready") == "demo is Ready. http://r"
    assert "after" in err.getvalue()
    assert "before" not in err.getvalue()
