"""Real vLLM workers with KV events, and the router in front of them.

The router is a process of its own, so that it can be killed; its decisions and state are read
from its admin port.
"""

from __future__ import annotations

import itertools
import json
import random
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.support.cachenode import ROOT, read_metric
from tests.support.ports import free_port
from tests.support.vllm.installation import model_path
from tests.support.vllm.worker import Worker
from tests.support.waiting import until

_WORDS = ("river", "stone", "cloud", "engine", "paper", "green", "window", "market", "light")
_numbers = itertools.count()


def text(words: int, seed: int | None = None) -> str:
    """About as many tokens as words; the same seed gives the same text, none a new one."""
    seed = next(_numbers) + 10_000 if seed is None else seed
    chosen = random.Random(seed)
    return f"{seed} " + " ".join(chosen.choice(_WORDS) for _ in range(words))


def events(endpoint: str, replay: str, **more: Any) -> tuple[str, str]:
    """A worker's arguments, so that it publishes there."""
    config = {
        "enable_kv_cache_events": True,
        "publisher": "zmq",
        "endpoint": endpoint,
        "replay_endpoint": replay,
        **more,
    }
    return "--kv-events-config", json.dumps(config)


@dataclass(frozen=True)
class Seat:
    """A worker and where its events come from; without endpoints the router queries the worker."""

    id: str
    worker: Worker
    kv_events: str = ""
    kv_replay: str = ""

    def config(self) -> dict[str, str]:
        channels = {"kv_events": self.kv_events, "kv_replay": self.kv_replay}
        return {"id": self.id, "url": self.worker.url} | {k: v for k, v in channels.items() if v}


@dataclass
class Router:
    folder: Path
    seats: Sequence[Seat]
    strategy: str = "kvaware"
    kv: dict[str, Any] = field(default_factory=dict)
    ranks: int = 1  # of each worker
    keys: Sequence[str] = ()  # ids of callers' keys, each let in by its own id; none: open to all
    more: dict[str, Any] = field(default_factory=dict)  # of the configuration
    port: int = field(default_factory=free_port)
    admin: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # The router's own questions to workers are for the test which is about them.
        kv = {"tokenizer": str(model_path()), "wait_s": 10, **self.kv}
        config = {
            "listen": f"127.0.0.1:{self.port}",
            "admin": f"127.0.0.1:{self.admin}",
            "strategy": self.strategy,
            "kv": kv,
            "workers": [seat.config() for seat in self.seats],
            "open_paths": ["*"],
            "access_log": {"sample": 1},
            **self.more,
        }
        if self.keys:
            known = [{"id": one, "sha256": sha256(one.encode()).hexdigest()} for one in self.keys]
            (self.folder / f"keys-{self.port}.json").write_text(json.dumps({"keys": known}))
            config["api_keys_file"] = f"keys-{self.port}.json"
        path = self.folder / f"router-{self.port}.json"
        path.write_text(json.dumps(config))
        log = self.log_path.open("ab")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "routing.engine", "--config", str(path)],
            cwd=self.folder,
            env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
            stdout=log,
            stderr=log,
        )
        until(self.ready, 120, "all workers up, followed where they are, and tokens verified")

    @property
    def log_path(self) -> Path:
        return self.folder / f"router-{self.port}.log"

    def ready(self) -> bool:
        try:
            workers = self.ask("/workers")["workers"]
            if any(one["state"] != "up" for one in workers):
                return False
            return self.strategy != "kvaware" or self.follows_all()
        except OSError:
            return False

    def follows_all(self) -> bool:
        kv = self.ask("/index")["kv"]
        states = [source["state"] for source in kv["sources"]]
        trusted = kv["tokens"] is not None and kv["tokens"]["trust"] == "verified"
        return trusted and kv["telling"] and states == ["following"] * len(self.seats) * self.ranks

    def stop(self, how: int = signal.SIGTERM) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(how)
            self.process.wait(40)

    def kill(self) -> None:
        self.stop(signal.SIGKILL)

    # -- its admin port

    def ask(self, path: str) -> Any:
        return json.loads(self.page(path))

    def page(self, path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def metric(self, name: str, **labels: str) -> float:
        return read_metric(self.page("/metrics"), name, **labels)

    def source(self, worker: str) -> dict[str, Any]:
        """State of the channel of a worker's events."""
        sources = self.ask("/index")["kv"]["sources"]
        return next(dict(source) for source in sources if source["worker"] == worker)

    def counts(self, worker: str) -> dict[str, int]:
        return dict(self.source(worker)["counts"])

    def log(self) -> str:
        return self.log_path.read_text()

    # -- requests

    def explain(self, body: dict[str, Any]) -> Any:
        return self._post(self.admin, "/explain", {"model": "m", **body})[0]

    def holds(self, worker: str, body: dict[str, Any]) -> dict[str, int]:
        """Tokens of a request at a worker by the index, by tier."""
        found = self.explain(body)["candidates"]
        return next(dict(one["matched"]) for one in found if one["worker"] == worker)

    def indexed_tokens(self, worker: str, prompt: str) -> int:
        """Tokens reported by the worker's events, without pending ones."""
        return int(self.explain({"prompt": prompt})["kv"]["workers"][worker]["told"])

    def knows(self, worker: str, prompt: str, tokens: int) -> None:
        """Wait until events report that the worker holds so much of the prompt."""
        until(
            lambda: self.indexed_tokens(worker, prompt) >= tokens,
            what=f"{tokens} tokens of a prompt in the index of {worker}",
        )

    def forgets(self, worker: str, prompt: str, tokens: int = 0) -> None:
        """Wait until no more than so much of it is believed to be there."""
        until(
            lambda: self.indexed_tokens(worker, prompt) <= tokens,
            what=f"{worker} without the prompt",
        )

    def send(self, path: str, body: dict[str, Any], pin: str = "") -> dict[str, Any]:
        """The request's decision, once the engine has reported what was cached."""
        body = {"model": "m", "max_tokens": 2, "temperature": 0, **body}
        _, decision = self._post(self.port, path, body, pin)
        found = until(
            lambda: (seen := self.ask(f"/decisions/{decision}"))["duration_s"] is not None and seen
        )
        assert found["status"] == 200, found
        return dict(found)

    def complete(self, prompt: str | list[int], pin: str = "", **more: Any) -> dict[str, Any]:
        return self.send("/v1/completions", {"prompt": prompt, **more}, pin)

    def _post(self, port: int, path: str, body: dict[str, Any], pin: str = "") -> tuple[Any, str]:
        headers = {"content-type": "application/json"} | ({"x-emberline-pin": pin} if pin else {})
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", json.dumps(body).encode(), headers
        )
        with urllib.request.urlopen(request, timeout=120) as answer:
            data = answer.read()
            return json.loads(data) if data else {}, answer.headers["x-emberline-decision"] or ""


def main_cause(misses: dict[str, Any]) -> str:
    """The cause of most computed tokens of a decision."""
    causes: dict[str, int] = misses["causes"]
    return max(causes, key=lambda cause: causes[cause])


def off(decision: dict[str, Any]) -> int:
    """Tokens predicted to be cached beyond those which were."""
    return int(decision["predicted_cached_tokens"] - decision["cached_tokens"])
