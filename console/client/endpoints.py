"""Endpoints and their subresources: one method per API operation.

Log lines are yielded once across reconnects: by their marker, or, without markers, by comparing the
end of the log.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, TypedDict, cast

from console.client import documents, endpoints
from console.client.errors import Unreachable
from console.client.http import Document, Http, HttpAnswer, ListClient, Params, ResourceClient
from console.client.watch import SILENCE_S, Watch, parse_events

# In a class with a method `list`, that name is not usable as a type.
Objects = list[Document]
Drifts = list[documents.Drift]


TAIL_LINES = 200
MAX_LINES = 2000
RECONNECT_S = 1.0


class Endpoints(ListClient[documents.Endpoint]):
    path = "endpoints/"

    def create(self, spec: Mapping[str, Any], *, dry_run: bool = False) -> Any:
        return self.http.send(
            "POST", self.path, spec, params=_dry_run_params(dry_run), once=True
        ).body

    def update(
        self,
        name: str,
        changes: Mapping[str, Any],
        *,
        generation: int | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Change fields; omitted ones are kept. `generation`: raise `Conflict` if the endpoint has
        another.
        """
        return self._change("PATCH", self._at(name), changes, generation, dry_run)

    def replace(
        self,
        name: str,
        spec: Mapping[str, Any],
        *,
        generation: int | None = None,
        dry_run: bool = False,
    ) -> Any:
        """Replace the spec; omitted fields get their defaults."""
        return self._change("PUT", self._at(name), spec, generation, dry_run)

    def scale(self, name: str, replicas: int, *, dry_run: bool = False) -> Any:
        path = self._at(name, "scale")
        return self._change("POST", path, {"replicas": replicas}, None, dry_run)

    def pause(self, name: str, *, dry_run: bool = False) -> Any:
        return self._change("POST", self._at(name, "pause"), None, None, dry_run)

    def resume(self, name: str, *, dry_run: bool = False) -> Any:
        return self._change("POST", self._at(name, "resume"), None, None, dry_run)

    def rollback(self, name: str, revision: int, *, dry_run: bool = False) -> Any:
        path = self._at(name, "rollback")
        return self._change("POST", path, {"revision": revision}, None, dry_run)

    def move(self, name: str, team: str | None, *, dry_run: bool = False) -> Any:
        """Assign to another team; None removes the owner."""
        return self._change("POST", self._at(name, "move"), {"team": team}, None, dry_run)

    def delete(self, name: str, *, abandon: bool = False, dry_run: bool = False) -> HttpAnswer:
        """Delete. `abandon`: the cluster is permanently gone; the response lists possible
        leftovers.
        """
        params: dict[str, Any] = {"abandon": True} if abandon else {}
        return self.http.send("DELETE", self._at(name), params=params | _dry_run_params(dry_run))

    def apply(
        self, objects: Objects, *, cluster: str = "", namespace: str = "", dry_run: bool = False
    ) -> Document:
        """Apply InferenceEndpointConfig objects or endpoint documents: all or none."""
        params = {"cluster": cluster, "namespace": namespace, **_dry_run_params(dry_run)}
        answer = self.http.send("POST", self.path + "apply/", objects, params=params)
        return cast(Document, answer.body)

    def export(self, name: str) -> str:
        return self.http.text(self._at(name, "export"))

    def exported(self, name: str) -> Document:
        path = self._at(name, "export")
        return self._get(path, {"output": "json"})

    def watch(self, name: str, *, timeout_s: float | None = None) -> Watch:
        """Yield the endpoint on each status change, until it is deleted."""
        return Watch(self.http, self._at(name), timeout_s)

    def events(self, name: str) -> Iterator[documents.EndpointEventDocument]:
        """Yield events, latest first."""
        return cast(
            Iterator[documents.EndpointEventDocument], self.http.pages(self._at(name, "events"))
        )

    def revisions(self, name: str) -> Iterator[documents.Revision]:
        """Yield revisions, latest first."""
        return cast(Iterator[documents.Revision], self.http.pages(self._at(name, "revisions")))

    def keys(self, name: str) -> Iterator[documents.Key]:
        return cast(Iterator[documents.Key], self.http.pages(self._at(name, "keys")))

    def create_key(
        self, name: str, label: str, terms: Mapping[str, Any] | None = None
    ) -> documents.NewKey:
        """Create a key with the limits in `terms`. Only this response contains the key."""
        data = {"name": label, **(terms or {})}
        answer = self.http.send("POST", self._at(name, "keys"), data, once=True)
        return cast(documents.NewKey, answer.body)

    def change_key(self, name: str, key_id: str, terms: Mapping[str, Any]) -> documents.Key:
        answer = self.http.send("PATCH", self._at(name, "keys", key_id), terms)
        return cast(documents.Key, answer.body)

    def rotate_key(self, name: str, key_id: str, grace_s: int | None = None) -> documents.NewKey:
        """Replace the secret. Only this response contains the new one."""
        data = {} if grace_s is None else {"grace_s": grace_s}
        answer = self.http.send("POST", self._at(name, "keys", key_id, "rotate"), data)
        return cast(documents.NewKey, answer.body)

    def usage(self, name: str, days: int | None = None) -> Document:
        return self._get(self._at(name, "usage"), {"days": days})

    def revoke_key(self, name: str, key_id: str) -> None:
        self.http.send("DELETE", self._at(name, "keys", key_id))

    def drift(self, name: str) -> Drifts:
        return cast(Drifts, [*self.http.pages(self._at(name, "drift"))])

    def heal(self, name: str, workload: str = "") -> Any:
        data = {"workload": workload} if workload else {}
        return self.http.send("POST", self._at(name, "drift", "heal"), data).body

    def adopt(self, name: str, key: str) -> Any:
        return self.http.send("POST", self._at(name, "drift", "adopt"), {"key": key}).body

    def doctor(self, name: str) -> documents.Examination:
        return cast(documents.Examination, self.http.get(self._at(name, "doctor")))

    def routers(self, name: str) -> Document:
        """Return each router with its exchange of state, and where they disagree."""
        return self._get(self._at(name, "routers"))

    def kv_index(self, name: str) -> Document:
        return self._get(self._at(name, "kv-index"))

    def routing(self, name: str) -> Document:
        """Return the strategy and the workers with their load, as the routers see them."""
        return self._get(self._at(name, "routing"))

    def misses(self, name: str, **query: str) -> Document:
        """Return the computed prompt tokens by cause; with `cause`, example decisions of it."""
        return cast(Document, self.http.get(self._at(name, "misses"), query))

    def traces(self, name: str) -> Document:
        """Return the recorded hours and imported traces."""
        return self._get(self._at(name, "traces"))

    def export_trace(self, name: str, query: Params) -> Iterator[bytes]:
        """Yield a file of recorded requests or of an imported trace."""
        with self.http.stream(self._at(name, "traces", "export"), query, accept="*/*") as answer:
            yield from answer.iter_bytes()

    def import_trace(self, name: str, file: bytes, query: Params) -> Document:
        path = self._at(name, "traces", "imports")
        return cast(Document, self.http.send("POST", path, file=file, params=query).body)

    def delete_hours(self, name: str, begin: str, end: str) -> Document:
        query = {"begin": begin, "end": end}
        return cast(Document, self.http.send("DELETE", self._at(name, "traces"), params=query).body)

    def delete_trace(self, name: str, trace: str) -> None:
        self.http.send("DELETE", self._at(name, "traces", "imports", trace))

    def decisions(self, name: str, limit: int = 50) -> Objects:
        body = self.http.get(self._at(name, "decisions"), {"limit": limit})
        return cast(Objects, body["decisions"])

    def decision(self, name: str, number: str) -> Document:
        return self._get(self._at(name, "decisions", number))

    def logs(
        self,
        name: str,
        worker: str = "",
        container: str = "",
        tail: int = TAIL_LINES,
        *,
        follow: bool = False,
    ) -> tuple[LogEnd, Iterator[str]]:
        """Return the log's name and its last lines, followed by new ones with `follow`. Defaults to
        the first container of the first worker.
        """
        query: dict[str, Any] = {"worker": worker, "container": container, "tail": tail}
        path = self._at(name, "logs", "lines")
        if not follow:
            end: LogEnd = self.http.get(path, query)
            return end, iter(end["lines"])
        end = self.http.get(path, {**query, "tail": 0})
        of = {"worker": end["worker"], "container": end["container"]}
        if end["marks"]:
            stream = self._at(name, "logs", "stream")
            return end, endpoints.follow_marked(self.http, stream, {**of, "tail": tail})
        first: LogEnd = self.http.get(path, {**of, "tail": tail})
        return end, endpoints.poll_log(self.http, path, of, first["lines"])

    def explain(
        self,
        name: str,
        request: Mapping[str, Any],
        *,
        strategy: str = "",
        session: str = "",
        key: str = "",
    ) -> Document:
        """Return the routing decision of each router for a request without forwarding it. `key`: id
        of the API key to assume.
        """
        data = {"request": request, "strategy": strategy, "session": session, "key": key}
        fields = {key: value for key, value in data.items() if value}
        return self._send("POST", self._at(name, "explain"), fields)

    def fit(self, spec: Mapping[str, Any]) -> Document:
        """Check whether the spec fits the requested capacity; creates nothing."""
        return self._send("POST", "fit/", spec)

    def preview(self, spec: Mapping[str, Any]) -> Document:
        """Return the processes the spec would run; creates nothing."""
        return self._send("POST", "preview/", spec)

    def _change(
        self, method: str, path: str, data: Any, generation: int | None, dry_run: bool
    ) -> Any:
        match = f'"{generation}"' if generation is not None else ""
        return self.http.send(
            method, path, data, if_match=match, params=_dry_run_params(dry_run)
        ).body


class Benchmarks(ResourceClient):
    path = "endpoints/"

    def list(self, name: str) -> Iterator[Document]:
        """Yield runs, latest first."""
        return self.http.pages(self._at(name, "benchmarks"))

    def plan(self, name: str, body: Mapping[str, Any]) -> Document:
        """Return the planned load without sending it."""
        return self._send("POST", self._at(name, "benchmarks", "plan"), body)

    def start(self, name: str, body: Mapping[str, Any]) -> Document:
        """Start a run, which loads the endpoint; never retried."""
        return self._send("POST", self._at(name, "benchmarks"), body)

    def get(self, name: str, run: str) -> Document:
        return self._get(self._at(name, "benchmarks", run))

    def abort(self, name: str, run: str) -> Document:
        return self._send("POST", self._at(name, "benchmarks", run, "abort"))

    def delete(self, name: str, run: str) -> None:
        self.http.send("DELETE", self._at(name, "benchmarks", run))

    def compare(self, a: str, b: str) -> Document:
        return self._get("benchmarks/compare/", {"a": a, "b": b})


class Canaries(ResourceClient):
    path = "endpoints/"

    def get(self, name: str) -> Document:
        """Return the running canary or the last one, under "canary"; null before the first."""
        return self._get(self._at(name, "canary"))

    def start(self, name: str, settings: Mapping[str, Any]) -> Document:
        return self._send("POST", self._at(name, "canary"), settings)

    def stop(self, name: str) -> Document:
        return cast(Document, self.http.send("DELETE", self._at(name, "canary")).body)

    def promote(self, name: str, note: str = "") -> Document:
        """Make the candidate the endpoint's strategy."""
        return self._send("POST", self._at(name, "canary", "promote"), {"note": note})


class WhatIfs(ResourceClient):
    path = "endpoints/"

    def list(self, name: str) -> Iterator[Document]:
        """Yield what-if analyses, latest first."""
        return self.http.pages(self._at(name, "what-if"))

    def present(self, name: str) -> Document:
        """Return the endpoint's present values."""
        return self._get(self._at(name, "what-if", "present"))

    def start(self, name: str, body: Mapping[str, Any]) -> Document:
        return self._send("POST", self._at(name, "what-if"), body, once=True)

    def get(self, name: str, run: str) -> Document:
        return self._get(self._at(name, "what-if", run))

    def cancel(self, name: str, run: str) -> Document:
        return self._send("POST", self._at(name, "what-if", run, "cancel"))

    def delete(self, name: str, run: str) -> None:
        self.http.send("DELETE", self._at(name, "what-if", run))


class AdviceClient(ResourceClient):
    path = "endpoints/"

    def get(self, name: str) -> Document:
        """Return the latest advice."""
        return self._get(self._at(name, "advice"))

    def start(self, name: str, assumptions: Mapping[str, Any]) -> Document:
        return self._send("POST", self._at(name, "advice"), assumptions, once=True)

    def cancel(self, name: str) -> Document:
        return self._send("POST", self._at(name, "advice", "cancel"))


def _dry_run_params(dry_run: bool) -> Document:
    return {"dry_run": True} if dry_run else {}


class LogEnd(TypedDict):
    """Log name and last lines. `others`: number of further logs of this endpoint; `marks`: lines
    have timestamps, used to resume the stream.
    """

    worker: str
    container: str
    state: str
    others: int
    marks: bool
    lines: list[str]


def follow_marked(http: Http, path: str, params: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of a log with markers until it ends."""
    mark = ""
    while True:
        headers = {"Last-Event-ID": mark} if mark else {}
        try:
            with http.stream(
                path, params, accept="*/*", headers=headers, silence_s=SILENCE_S
            ) as answer:
                for event in parse_events(answer):
                    mark = event.id or mark
                    if event.name == "ended":
                        return
                    if event.name == "problem":
                        raise _Problem(json.loads(event.data))
                    if event.name in ("message", "anew") and event.data:
                        yield json.loads(event.data)
        except _Problem:
            raise
        except Unreachable:
            http.get("me/")  # retries until the console is back, or raises
        if not http.live:
            return
        http.pause(RECONNECT_S)


def poll_log(http: Http, path: str, params: dict[str, Any], first: list[str]) -> Iterator[str]:
    """Yield the lines of a log without markers by polling its end, after the `first` ones."""
    yield from first
    before = first
    while True:
        http.pause(RECONNECT_S)
        now: list[str] = http.get(path, {**params, "tail": MAX_LINES})["lines"]
        yield from now[_first_new_line(before, now) :]
        before = now


class _Problem(Unreachable):
    """Permanent error reported by the console in the stream."""


def _first_new_line(before: list[str], now: list[str]) -> int:
    """Return the index of the first line in `now` that is not in `before`."""
    for begin in range(len(now), 0, -1):
        common = min(begin, len(before))
        if common and now[begin - common : begin] == before[-common:]:
            return begin
    return 0
