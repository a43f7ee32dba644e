"""python -m bench.isolation_console URL --token-file FILE --password-file FILE: the isolation
preview of a running console, and what its routers measured once the isolation was in force.

Creates an endpoint with two simulated (with `--vllm`, real) workers and four key groups, records
the traffic of `bench.isolation_preview` without isolation, presses *Preview effect* as the page
does, then sets the isolation and sends the same requests at the same times, and again without it
(control: how the machine changed). TTFT and cached tokens are those of the routers' decisions. Real
time: three times `--seconds` and about three minutes. The endpoint and the key groups are deleted
at the end.
"""

from __future__ import annotations

import argparse
import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from bench.isolation_preview import (
    BLOCK,
    DEVICE_BLOCKS,
    GROUPS,
    WORKERS,
    TimedPrompt,
    measured,
    show,
    traffic,
)
from bench.rig import busy, machine
from routing.traces.trace import Trace, TraceRequest

VLLM_BLOCK = 32  # tokens; vLLM on a CPU takes multiples of it
_POLL_S = 1.0
_PATIENCE_S = 240.0
_PROBE = "A probe of the isolation in force. " * 60


def until(what: str, probe: Callable[[], Any]) -> Any:
    """Return the first truthy result."""
    end = time.monotonic() + _PATIENCE_S
    while not (found := probe()):
        if time.monotonic() > end:
            raise TimeoutError(f"{what}: not within {_PATIENCE_S:.0f} s")
        time.sleep(_POLL_S)
    return found


@dataclass
class ConsoleRun:
    """An endpoint of a console, through REST, its pages and its router."""

    url: str
    token: str
    name: str
    keys: dict[str, str] = field(default_factory=dict)  # by group
    groups: dict[str, str] = field(default_factory=dict)  # ID by name
    router: str = ""

    def api(self, method: str, path: str, body: Any = None) -> Any:
        answer = httpx.request(
            *(method, f"{self.url}/api/v1{path}"),
            json=body,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=60,
        )
        if answer.is_error:
            raise RuntimeError(f"{method} {path}: {answer.status_code} {answer.text[:400]}")
        return answer.json() if answer.content else None

    def create(self, speed: float | None) -> None:
        """Create the endpoint; `speed` is that of simulated workers, None stands for vLLM."""
        args = ["--device-blocks", str(DEVICE_BLOCKS), "--speed", str(speed)]
        block = BLOCK
        if speed is None:
            block = VLLM_BLOCK
            args = ["--num-gpu-blocks-override", str(DEVICE_BLOCKS * BLOCK // block)]
        self.api(
            "POST",
            "/endpoints/",
            {
                "name": self.name,
                "model": "smollm2-135m-instruct",
                "engine": "vllm" if speed is None else "simulated",
                "replicas": WORKERS,
                "worker_args": args,
                "cache": {
                    "l1": {"enabled": False, "chunk_tokens": block},
                    "l2": {"enabled": False},
                },
                "routing": self._routing("shared"),
            },
        )
        self.settled()
        for number in range(GROUPS):
            group = {"name": f"{self.name}-g{number}", "endpoints": [self.name]}
            made = self.api("POST", "/key-groups/", group)
            self.groups[f"g{number}"] = made["id"]
            key = self.api("POST", f"/key-groups/{made['id']}/keys/", {"name": "bench"})
            self.keys[f"g{number}"] = key["key"]
        for group in self.keys:
            until(f"key of {group}", lambda group=group: self.probe(group).status_code == 200)

    def _routing(self, isolation: str) -> dict[str, Any]:
        return {
            "enabled": True,
            "strategy": "prefixaware",
            "cache_isolation": isolation,
            "record_traffic": True,
        }

    def settled(self) -> None:
        def probe() -> bool:
            found = self.api("GET", f"/endpoints/{self.name}/")
            self.router = found["url"] or ""
            return found["phase"] == "Ready" and found["observed_generation"] == found["generation"]

        until(f"{self.name} is Ready", probe)

    def probe(self, group: str, prompt: str = "ping") -> httpx.Response:
        return self.complete(TimedPrompt(0.0, group, prompt, 1))

    def complete(self, ask: TimedPrompt) -> httpx.Response:
        body = {"model": self.name, "prompt": ask.prompt, "max_tokens": ask.max_tokens}
        headers = {"Authorization": f"Bearer {self.keys[ask.group]}"}
        url = f"{self.router}/v1/completions"
        return httpx.post(url, json=body | {"stream": True}, headers=headers, timeout=120)

    def decision(self, answer: httpx.Response) -> dict[str, Any]:
        number = answer.headers["x-emberline-decision"]
        found: dict[str, Any] = self.api("GET", f"/endpoints/{self.name}/decisions/{number}/")
        return found

    def isolate(self, isolation: str) -> None:
        """Set the isolation; return once a prompt of one group is cached for another, or not."""
        self.api("PATCH", f"/endpoints/{self.name}/", {"routing": self._routing(isolation)})
        self.settled()
        tries = iter(range(1000))

        def probe() -> bool:
            prompt = f"{isolation} {next(tries)}. {_PROBE}"
            found = [self.decision(self.probe(group, prompt)) for group in ("g0", "g1")]
            same = found[0]["chosen"] == found[1]["chosen"]
            cached = bool(found[1]["cached_tokens"])
            return cached == (isolation == "shared") and (same or isolation == "group")

        until(f"isolation {isolation} is in force", probe)

    def serve(self, asks: Sequence[TimedPrompt]) -> Trace:
        """Send each at its time; return what the router measured."""
        answers: list[httpx.Response | None] = [None] * len(asks)

        def send(at: int) -> None:
            answers[at] = self.complete(asks[at])

        begin = time.monotonic()
        threads = []
        for at, ask in enumerate(asks):
            time.sleep(max(begin + ask.at - time.monotonic(), 0))
            threads.append(threading.Thread(target=send, args=(at,)))
            threads[-1].start()
        for thread in threads:
            thread.join()
        rows = []
        for ask, answer in zip(asks, answers, strict=True):
            if answer is None or answer.status_code != 200:
                raise RuntimeError(f"request failed: {answer and answer.text[:200]}")
            one = self.decision(answer)
            rows.append(
                TraceRequest(
                    *(ask.at, one["prompt_tokens"], one["completion_tokens"] or 0, ()),
                    ttft_s=one["ttft_s"],
                    cached_tokens=one["cached_tokens"],
                    key_group=f"{self.name}-{ask.group}",
                )
            )
        return Trace(64, rows)

    def recorded(self) -> int:
        hours = self.api("GET", f"/endpoints/{self.name}/traces/")["hours"]
        return sum(one["requests"] for one in hours)

    def preview(self, password: str) -> tuple[str, dict[str, Any]]:
        """Press *Preview effect* of the endpoint's form; return what it shows, and the analysis."""
        with httpx.Client(base_url=self.url, follow_redirects=True, timeout=60) as page:
            _submit(page, "/login/", "/login/", {"username": "admin", "password": password})
            edit = f"/endpoints/{self.name}/edit/"
            wanted = {"routing.cache_isolation": "group"}
            path = f"/what-if/endpoints/{self.name}/isolation/"
            shown = _submit(page, edit, path, wanted).text
            poll = re.search(r'hx-get="([^"]+)"', shown)
            if poll is None:
                raise RuntimeError(f"no preview: {_text(shown)}")
            found = until(
                "the preview",
                lambda: (text := page.get(poll[1]).text) and "hx-get" not in text and text,
            )
        run = poll[1].split("?")[0].rstrip("/").rpartition("/")[2]
        return _text(found), self.api("GET", f"/endpoints/{self.name}/what-if/{run}/")["result"]

    def delete(self) -> None:
        self.api("DELETE", f"/endpoints/{self.name}/")
        for group in self.groups.values():
            self.api("DELETE", f"/key-groups/{group}/")


def _submit(page: httpx.Client, form: str, action: str, values: dict[str, str]) -> httpx.Response:
    found = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', page.get(form).text)
    if found is None:
        raise RuntimeError(f"{form} has no form")
    values = values | {"csrfmiddlewaretoken": found[1]}
    headers = {"Referer": f"{page.base_url}{form}"}
    return page.post(action, data=values, headers=headers).raise_for_status()


def _text(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("url", help="of the console")
    parser.add_argument("--token-file", type=Path, required=True)
    parser.add_argument("--password-file", type=Path, required=True, help="of the user admin")
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--rate", type=float, default=3.0, help="requests/s")
    workers = parser.add_mutually_exclusive_group()
    workers.add_argument("--speed", type=float, default=5.0, help="of the simulated workers")
    workers.add_argument("--vllm", action="store_true", help="real workers")
    flags = parser.parse_args()
    asks = traffic(flags.seconds, flags.rate)
    print(f"{machine()}; {len(asks)} requests; {flags}", flush=True)
    run = ConsoleRun(flags.url, flags.token_file.read_text().strip(), f"iso-{os.getpid()}")
    speed = None if flags.vllm else flags.speed
    run.create(speed)
    try:
        before = _phase(run, asks)
        until("the recording", lambda: run.recorded() >= len(asks))
        shown, result = run.preview(flags.password_file.read_text().strip())
        print(f"the form shows: {shown}", flush=True)
        run.isolate("group")
        after = _phase(run, asks)
        run.isolate("shared")
        again = _phase(run, asks)
    finally:
        run.delete()
    if "isolation" in result:  # without the console's own requests
        rows = result["isolation"]["rows"]
        rows[:] = [one for one in rows if not one["scope"] or one["name"].startswith(run.name)]
        for row in rows:
            row["scope"] = row["scope"] and f"group {row['name']}"
    show(result, before, after, again, speed)
    print(busy())


def _phase(run: ConsoleRun, asks: Sequence[TimedPrompt]) -> Trace:
    trace = run.serve(asks)
    print(f"load {os.getloadavg()[0]:.1f}, measured: {measured(trace)}", flush=True)
    return trace


if __name__ == "__main__":
    main()
