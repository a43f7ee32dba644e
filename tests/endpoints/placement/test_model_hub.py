"""Existence check of model names, against a stand-in for Hugging Face."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from endpoints.placement import model_hub
from endpoints.placement.model_hub import HubModel, HubStatus
from endpoints.spec.endpoint_spec import EndpointSpec, parse

FACTS = {"cardData": {"license": "mit"}, "gated": "manual", "safetensors": {"total": 7}}


class Hub(BaseHTTPRequestHandler):
    queried: list[str]

    def do_GET(self) -> None:
        type(self).queried.append(self.path)
        name = self.path.removeprefix("/api/models/")
        status = {"org/absent": 404, "org/private": 401, "org/broken": 503}.get(name, 200)
        body = b"not JSON" if name == "org/odd" else json.dumps(FACTS).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args: Any) -> None: ...


@pytest.fixture
def hub(settings: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    Hub.queried = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    settings.EMBERLINE = replace(settings.EMBERLINE, model_hub=address)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.delenv("HF_TOKEN", raising=False)
    model_hub.cache.clear()
    yield Hub.queried
    server.shutdown()
    server.server_close()
    model_hub.cache.clear()


def spec_of(model: str, **more: Any) -> EndpointSpec:
    return parse({"name": "demo", "model": model, **more})


def test_a_model_is_looked_up_once(hub: list[str]) -> None:
    found = model_hub.lookup("org/name")
    assert found == HubModel("org/name", HubStatus.FOUND, "", "mit", gated=True, params=7)
    assert model_hub.lookup("org/name") == found == model_hub.cached("org/name")
    assert hub == ["/api/models/org/name"]
    assert model_hub.hub_problem(spec_of("org/name")) is None


@pytest.mark.parametrize("name", ["org/absent", "org/private"])
def test_a_missing_model_is_refused_once_looked_up(hub: list[str], name: str) -> None:
    assert model_hub.hub_problem(spec_of(name)) is None, "saving connects nowhere"
    assert hub == []
    model_hub.lookup(name)
    problem = model_hub.hub_problem(spec_of(name))
    assert problem is not None
    assert (problem.field, problem.code) == ("model", "unknown_model")
    assert problem.message == f"127.0.0.1 has no public model {name}."
    assert model_hub.hub_problem(spec_of(name, engine="simulated")) is None


def test_a_private_model_passes_with_a_token_or_a_local_copy(
    hub: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_hub.lookup("org/private")
    there: dict[str, Any] = {"placement": {"cluster": "here"}}
    problem = model_hub.hub_problem(spec_of("org/private", **there))
    assert problem is not None
    assert "source.token_secret" in problem.remedy
    kept = {**there, "source": {"token_secret": "hf"}}
    assert model_hub.hub_problem(spec_of("org/private", **kept)) is None
    copy = tmp_path / "hub" / "models--org--private"
    copy.mkdir(parents=True)
    assert model_hub.hub_problem(spec_of("org/private")) is None
    copy.rmdir()
    monkeypatch.setenv("HF_TOKEN", "x")
    assert model_hub.hub_problem(spec_of("org/private")) is None


def test_only_names_that_workers_download_are_looked_up() -> None:
    there: dict[str, Any] = {"placement": {"cluster": "here"}}
    assert model_hub.hub_name(spec_of("org/name")) == "org/name"
    for model in ("/models/mine", "smollm2-135m-instruct"):
        assert model_hub.hub_name(spec_of(model)) == ""
    located = {**there, "source": {"type": "huggingface", "location": "org/other"}}
    assert model_hub.hub_name(spec_of("org/name", **located)) == "org/other"
    for source in ({"type": "pvc", "claim": "c"}, {"endpoint": "https://mirror"}):
        assert model_hub.hub_name(spec_of("org/name", **there, source=source)) == ""


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("org/broken", "127.0.0.1 answered 503"),
        ("org/odd", "127.0.0.1 returned a response that is not JSON"),
    ],
)
def test_malformed_hub_response_is_not_checked(hub: list[str], name: str, reason: str) -> None:
    assert model_hub.lookup(name) == HubModel(name, HubStatus.NOT_CHECKED, reason)
    assert model_hub.lookup("org/name").reason == reason, "no other request for a minute"
    assert len(hub) == 1
    assert model_hub.hub_problem(spec_of(name)) is None


def test_unreachable_hub_is_not_checked(hub: list[str], settings: Any) -> None:
    settings.EMBERLINE = replace(settings.EMBERLINE, model_hub="http://127.0.0.1:1")
    found = model_hub.lookup("org/name")
    assert found.status is HubStatus.NOT_CHECKED
    assert found.reason == "127.0.0.1 is not reachable from the console"


def test_hanging_name_resolution_ends_at_the_deadline(
    hub: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    release = threading.Event()
    monkeypatch.setattr(model_hub, "DEADLINE_S", 0.05)
    monkeypatch.setattr(model_hub, "_fetch", lambda *_: release.wait(20))
    assert model_hub.lookup("org/name").reason == "127.0.0.1 did not respond within 0.05 s"
    release.set()


def test_check_can_be_disabled(settings: Any) -> None:
    settings.EMBERLINE = replace(settings.EMBERLINE, model_hub="")
    assert model_hub.lookup("org/name").reason == "the check is off (EMBERLINE_MODEL_HUB)"
