"""Model catalogue: over REST, and as the options of the form."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from endpoints.fit.estimate import GIB, Machine
from endpoints.placement import capacity_check, model_hub, model_list
from endpoints.placement.model_hub import HubModel, HubStatus
from tests.support.console import browser, program

pytestmark = pytest.mark.django_db
MODELS, CHECK = "/api/v1/models/", "/api/v1/models/check/"
OPTIONS, FACTS = "/endpoints/new/models/", "/endpoints/new/model/"


@pytest.fixture
def page(db: None) -> Client:
    return browser("operator")


def words_of(answer: Any) -> str:
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def test_the_catalogue_is_listed_and_searched() -> None:
    viewer = program("viewer")
    listed = viewer.get(MODELS, {"page_size": 100}).json()["results"]
    assert listed[0]["name"] == "smollm2-135m-instruct", "local models are first"
    names = [one["name"] for one in listed[1:]]
    assert names == sorted(names, key=str.lower)
    (found,) = viewer.get(MODELS, {"search": "LLAMA 70b 3.3"}).json()["results"]
    assert found["name"] == "meta-llama/Llama-3.3-70B-Instruct"
    assert (found["license"], found["gated"]) == ("Llama 3.3 Community", True)
    assert found["params"] == pytest.approx(70.6e9, rel=0.01)
    assert found["max_context"] == 131_072
    assert found["here"]["verdict"] == "does_not_fit"
    assert found["instance"]["verdict"] == "fits"
    assert found["instance"]["gpus"] > 1
    assert viewer.get(MODELS, {"search": "apache 494m"}).json()["results"][0]["name"] == (
        "Qwen/Qwen2.5-0.5B-Instruct"
    )
    assert viewer.get(MODELS, {"search": "nothing"}).json()["results"] == []
    assert viewer.get(MODELS, {"cluster": "nowhere"}).json()["results"] == []


def test_a_cluster_is_compared_by_its_node_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    pools = {"big": Machine("big", "H100", 8, 80 * GIB, 2048 * GIB, 192)}
    monkeypatch.setattr(capacity_check, "node_pools", lambda _name, **_: pools)
    here = model_list.find_model("Qwen/Qwen3-32B", "prod").here
    assert here is not None
    assert (here.machine, here.gpus) == ("big", 2)
    assert all(not one.local for one in model_list.list_models("", "prod"))
    pools.clear()
    assert model_list.find_model("Qwen/Qwen3-32B", "prod").here is None


def test_a_name_is_checked_over_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = HubModel("org/name", HubStatus.FOUND, licence="mit", params=7)
    monkeypatch.setattr(model_hub, "lookup", lambda _name: answer)
    found = program("operator").post(CHECK, {"name": "org/name"}).json()
    assert (found["params"], found["here"]) == (0, None), "the shape is unknown"
    assert found["hub"] == {
        "status": "found",
        "reason": "",
        "license": "mit",
        "gated": False,
        "params": 7,
    }
    assert program("operator").post(CHECK, {"name": "/models/mine"}).json()["hub"] is None
    assert program("viewer").post(CHECK, {"name": "org/name"}).status_code == 403
    for wrong in ({}, {"name": "no model"}, {"name": [1]}, {"name": "m", "cluster": "nowhere"}):
        assert program("operator").post(CHECK, wrong).status_code == 400, wrong


def test_a_model_found_to_be_missing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = HubModel("org/absent", HubStatus.MISSING)
    monkeypatch.setattr(model_hub, "cached", lambda _name: missing)
    small = {"cache": {"l1": {"size_gib": 0.01}}, "resources": {"memory_gib": 0.5}}
    wanted = {"name": "demo", "model": "org/absent", "engine": "vllm", **small}
    refused = program("admin").post("/api/v1/endpoints/", wanted)
    assert (refused.status_code, refused.json()["code"]) == (400, "unknown_model")


def test_options_of_the_model_field(page: Client) -> None:
    every = page.get(OPTIONS, {"model": "smollm2-135m-instruct"})
    assert every.content.count(b'role="option"') > 20, "a complete name is no search"
    assert b'data-value="smollm2-135m-instruct" aria-selected="true"' in every.content
    text = words_of(page.get(OPTIONS, {"model": "mixtral"}))
    assert "mistralai/Mixtral-8x7B-Instruct-v0.1 46.70B" in text
    assert "87 GiB weights · context 32,768 tokens · Apache 2.0" in text
    assert "does not fit this machine, fits g6e.12xlarge (4 × L40S)" in text
    none = words_of(page.get(OPTIONS, {"model": "<b>", "placement.cluster": "nowhere"}))
    assert none.startswith("No known model matches. Any Hugging Face name")
    assert browser("viewer").get(OPTIONS).status_code == 403


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (HubStatus.FOUND, "Found on Hugging Face"),
        (HubStatus.MISSING, "Not found on Hugging Face"),
        (HubStatus.PRIVATE, "Not found on Hugging Face"),
        (HubStatus.NOT_CHECKED, "Not checked on Hugging Face No network."),
    ],
)
def test_facts_of_the_typed_model(
    page: Client, monkeypatch: pytest.MonkeyPatch, status: HubStatus, words: str
) -> None:
    answer = HubModel("Qwen/Qwen3-8B", status, reason="no network")
    monkeypatch.setattr(model_hub, "lookup", lambda _name: answer)
    typed = {"model": "Qwen/Qwen3-8B", "engine": "vllm"}
    shown = page.get(FACTS, typed)
    assert "8.19B parameters · 15.3 GiB weights" in words_of(shown)
    assert words in words_of(shown)
    missing = status in (HubStatus.MISSING, HubStatus.PRIVATE)
    assert shown.headers.get("HX-Trigger", "") == ("model-checked" if missing else "")
    assert "Hugging Face" not in words_of(page.get(FACTS, {**typed, "engine": "simulated"}))


def test_invalid_model_has_no_facts(page: Client) -> None:
    for typed in ("", "a b", "../x", "<b>"):
        assert page.get(FACTS, {"model": typed}).content == b""
