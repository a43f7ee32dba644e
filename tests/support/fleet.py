"""Real router with simulated workers as processes, and their endpoint."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from endpoints.keys import storage
from endpoints.models import Endpoint
from tests.support.cachenode import ROOT
from tests.support.console import make_endpoint, pretend_ready
from tests.support.ports import free_ports
from tests.support.simulated import SimulatedWorker
from tests.support.waiting import until

KEY = "ebk_the-console-s-own-key-of-this-fleet"


@dataclass
class Fleet:
    url: str
    admin_url: str
    strategy: str
    workers: dict[str, str] = field(default_factory=dict)

    def endpoint(self, name: str = "demo") -> Endpoint:
        """Create the endpoint with the status of a reconciler."""
        made = make_endpoint(name, routing={"enabled": True, "strategy": self.strategy})
        storage.write_console_key(name, KEY)
        return pretend_ready(
            made, url=self.url, admin_url=self.admin_url, workers=dict(self.workers)
        )

    def stream(self, prompt: str, **more: Any) -> httpx.Response:
        """Request one short completion through the router."""
        body = {"model": "demo", "prompt": prompt, "max_tokens": 2, **more}
        return httpx.post(
            f"{self.url}/v1/completions",
            json=body,
            headers={"authorization": f"Bearer {KEY}"},
            trust_env=False,
            timeout=30,
        )


@contextmanager
def fleet(
    folder: Path, strategy: str = "prefixaware", workers: int = 2, speed: float = 8
) -> Iterator[Fleet]:
    data, admin = free_ports(2)
    with ExitStack() as stack:
        started = {}
        for number in range(workers):
            worker = SimulatedWorker(folder, speed=speed)
            stack.callback(worker.close)
            started[f"demo-worker-{number}"] = f"http://127.0.0.1:{worker.port}"
        hashed = hashlib.sha256(KEY.encode()).hexdigest()
        (folder / "keys.json").write_text(
            json.dumps({"keys": [{"id": "console", "sha256": hashed, "pin": True}]})
        )
        config = {
            "endpoint": "demo",
            "listen": f"127.0.0.1:{data}",
            "admin": f"127.0.0.1:{admin}",
            "strategy": strategy,
            "model": "demo",
            "api_keys_file": "keys.json",
            "workers": [{"id": name, "url": url} for name, url in started.items()],
        }
        (folder / "router.json").write_text(json.dumps(config))
        argv = [sys.executable, "-m", "routing.engine", "--config", str(folder / "router.json")]
        with (folder / "router.log").open("wb") as log:
            router = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=log)
        stack.callback(router.wait, 10)
        stack.callback(router.terminate)
        found = Fleet(f"http://127.0.0.1:{data}", f"http://127.0.0.1:{admin}", strategy, started)
        until(lambda: _up(found), what="the router")
        yield found


def _up(found: Fleet) -> bool:
    try:
        document = httpx.get(f"{found.admin_url}/workers", trust_env=False).json()["workers"]
    except httpx.HTTPError:
        return False
    return [one["state"] for one in document] == ["up"] * len(found.workers)
