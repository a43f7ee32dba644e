"""Endpoint form with clusters: shown fields and kept values."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from console.accounts.models import User
from console.clusters import selectors as clusters
from console.provisioners.kubernetes.api import capabilities as able
from endpoints import actions
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint
from endpoints.pages.editor.form_fields import MARK
from endpoints.pages.editor.form_sections import summarize_group
from endpoints.pages.editor.forms import EndpointForm
from endpoints.placement import spec_context
from endpoints.spec.cluster_rules import ClusterFacts
from endpoints.spec.endpoint_spec import flatten, merge, parse
from tests.endpoints.pages.editor.test_views import sent

pytestmark = pytest.mark.django_db
LACKING = frozenset({able.S3_CSI, able.INGRESS})


@pytest.fixture(autouse=True)
def prod(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster that lacks two capabilities, one with a reason."""
    facts = ClusterFacts(
        "prod",
        capabilities=frozenset(able.CAPABILITIES) - LACKING,
        why_not=lambda name: "No IngressClass was found." if name == able.INGRESS else "",
    )
    monkeypatch.setattr(clusters, "names", lambda: ["prod"])
    monkeypatch.setattr(spec_context, "cluster_facts", lambda name: replace(facts, name=name))


@pytest.fixture
def page(alice: User) -> Client:
    client = Client()
    client.force_login(alice)
    return client


def typed(data: dict[str, Any], **more: str) -> dict[str, Any]:
    flat = {"name": data["name"], "model": "org/big", "engine": "simulated", "replicas": "1"}
    return {**flat, "cache.l1.enabled": "on", **{k.replace("__", "."): v for k, v in more.items()}}


def test_gpus_named_by_the_pods_resources_are_shown(page: Client, data: dict[str, Any]) -> None:
    pod = {"resources": {"limits": {"amd.com/gpu": 2}}}
    made = actions.create(SYSTEM, merge(data, {"placement": {"cluster": "prod"}, "pod": pod}))
    assert summarize_group("placement", made.parsed).endswith(", 2 GPU per worker")
    assert "GiB, 2 GPU" in page.get(made.get_absolute_url()).text


def test_cluster_fields_appear_with_a_cluster(page: Client, data: dict[str, Any]) -> None:
    first = page.get("/endpoints/new/").content.decode()
    assert 'name="placement.cluster"' in first
    assert 'name="source.type"' not in first
    drawn = page.post("/endpoints/new/?drawn=anew", typed(data, placement__cluster="prod"))
    text = drawn.content.decode()
    assert drawn.status_code == 200
    assert not Endpoint.objects.exists(), "drawing is not creating"
    assert 'value="demo"' in text, "what was typed comes along"
    for path in ("source.type", "pod.image", "scaling.triggers", "exposure.kind", "tags"):
        assert f'name="{path}"' in text


def test_unavailable_options_are_disabled_with_a_reason(page: Client, data: dict[str, Any]) -> None:
    text = page.post(
        "/endpoints/new/?drawn=anew", typed(data, placement__cluster="prod")
    ).content.decode()
    assert '<option value="ingress" disabled>' in text
    assert "No IngressClass was found." in text
    assert '<option value="s3" disabled>' in text
    assert able.CAPABILITIES[able.S3_CSI].remedy in text.replace("&#x27;", "'")
    assert '<option value="gateway">' in text


def test_typed_values_become_the_spec(page: Client, data: dict[str, Any]) -> None:
    sent = typed(
        data,
        placement__cluster="prod",
        placement__instance_types="ml.g5.8xlarge\nml.g5.12xlarge",
        pod__env="A: '1'\nB: two",
        scaling__triggers="- type: cpu\n  metadata: {value: '60'}",
        scaling__enabled="on",
        tags="team: search",
    )
    answer = page.post("/endpoints/new/", {**sent, MARK: "prod"})
    assert answer.status_code == 302, answer.content.decode()[:2000]
    spec = Endpoint.objects.get().parsed
    assert spec.placement.instance_types == ("ml.g5.8xlarge", "ml.g5.12xlarge")
    assert spec.pod.env == {"A": "1", "B": "two"}
    assert spec.scaling.triggers == [{"type": "cpu", "metadata": {"value": "60"}}]
    assert spec.tags == {"team": "search"}
    assert not spec.rollout.auto_rollback, "it was in the page, and not ticked"
    again = page.get("/endpoints/demo/edit/").content.decode()
    assert "ml.g5.8xlarge\nml.g5.12xlarge" in again
    assert "- type: cpu" in again


def test_fields_absent_without_script_keep_their_defaults(
    page: Client, data: dict[str, Any]
) -> None:
    page.post("/endpoints/new/", typed(data, placement__cluster="prod"))
    spec = Endpoint.objects.get().parsed
    assert spec.rollout.auto_rollback
    assert spec.monitoring.enabled


@pytest.mark.parametrize(
    ("path", "text"), [("pod.env", "{"), ("pod.env", "- a"), ("scaling.triggers", "a: b")]
)
def test_unreadable_values_are_rejected_at_their_field(
    page: Client, data: dict[str, Any], path: str, text: str
) -> None:
    sent = {**typed(data, placement__cluster="prod"), MARK: "prod", path: text}
    answer = page.post("/endpoints/new/", sent)
    assert answer.status_code == 400
    assert f'id="id_{path}_error"' in answer.content.decode()


def test_edit_keeps_the_location(page: Client, data: dict[str, Any]) -> None:
    page.post("/endpoints/new/", typed(data, placement__cluster="prod"))
    text = page.get("/endpoints/demo/edit/").content.decode()
    assert 'hx-post="?drawn=anew"' not in text
    # What a browser sends of this page: nothing of a disabled list.
    answer = page.post("/endpoints/demo/edit/", {**typed(data, replicas="3"), MARK: "prod"})
    assert answer.status_code == 302
    spec = Endpoint.objects.get().parsed
    assert (spec.placement.cluster, spec.replicas) == ("prod", 3)


def test_every_shown_field_is_read_back_unchanged(data: dict[str, Any]) -> None:
    whole = merge(
        data,
        {
            "placement.cluster": "prod",
            "placement.node_selector": {"pool": "a"},
            "placement.tolerations": [{"key": "gpu", "operator": "Exists"}],
            "pod.command": ["vllm", "serve"],
            "limits.max_queue": 0,
        },
    )
    spec = parse(whole)
    form = EndpointForm(spec=spec.to_dict(), context=spec_context.context())
    sent = {MARK: "prod"}
    for name in form.fields:
        value = form[name].value()
        if value is True:
            sent[name] = "on"
        elif value is not False:
            sent[name] = str(value)
    back = EndpointForm(sent, spec=spec.to_dict(), context=spec_context.context()).spec_data()
    before = spec.flat()
    assert {k: v for k, v in flatten(back).items() if v != before[k]} == {}


def test_pages_show_the_location(page: Client, data: dict[str, Any]) -> None:
    sent = typed(data, placement__cluster="prod", placement__namespace="llm")
    drawn = page.post("/endpoints/new/?drawn=anew", sent).content.decode()
    assert "Cluster prod" in drawn
    assert "Shared, for L1" not in drawn
    page.post("/endpoints/new/", sent)
    assert "prod, namespace llm" in page.get("/endpoints/demo/").content.decode()


def test_checkboxes_of_a_cluster_have_their_defaults(page: Client, data: dict[str, Any]) -> None:
    drawn = page.post("/endpoints/new/?drawn=anew", typed(data, placement__cluster="prod"))
    again = sent(drawn)
    assert again["rollout.auto_rollback"] == "on"
    assert page.post("/endpoints/new/", again).status_code == 302
    spec = Endpoint.objects.get().parsed
    assert spec.rollout.auto_rollback
    assert spec.monitoring.enabled
    assert spec == parse({**spec.to_dict(), "rollout": {}, "monitoring": {}})


def test_changing_the_cluster_loses_no_input(page: Client, data: dict[str, Any]) -> None:
    first = page.post("/endpoints/new/?drawn=anew", typed(data, placement__cluster="prod"))
    filled = sent(first, pod__env="A: '1'", tags="team: search")
    del filled["rollout.auto_rollback"]
    here = page.post("/endpoints/new/?drawn=anew", {**filled, "placement.cluster": ""})
    aside = sent(here)
    assert aside["pod.env"] == "A: '1'"
    assert MARK not in aside
    back = sent(page.post("/endpoints/new/?drawn=anew", {**aside, "placement.cluster": "prod"}))
    assert (back["pod.env"], back["tags"]) == ("A: '1'", "team: search")
    assert "rollout.auto_rollback" not in back, "it was unticked"
    page.post("/endpoints/new/", aside)
    assert Endpoint.objects.get().parsed.pod.env == {}, "what is set aside is not used"


def test_unsupported_fields_survive_an_edit(
    page: Client, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    triggers = [{"type": "cpu", "metadata": {"value": "60"}}]
    page.post(
        "/endpoints/new/",
        {**typed(data, placement__cluster="prod"), "scaling.triggers": str(triggers), MARK: "prod"},
    )
    lost = ClusterFacts("prod", capabilities=frozenset(able.CAPABILITIES) - {able.KEDA})
    monkeypatch.setattr(spec_context, "cluster_facts", lambda _name: lost)
    answer = page.get("/endpoints/demo/edit/")
    form = sent(answer, replicas="2")
    assert "scaling.triggers" not in form, "a browser does not send what is switched off"
    page.post("/endpoints/demo/edit/", form)
    spec = Endpoint.objects.get().parsed
    assert (spec.replicas, spec.scaling.triggers) == (2, triggers)


def test_preset_fits_the_selected_location(
    page: Client, data: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = sent(page.get("/endpoints/new/?start=documents"), name="docs")
    assert here["cache.l1.size_gib"] == "1"
    here["cache.l1.chunk_tokens"] = "64"
    drawn = page.post("/endpoints/new/?drawn=anew", {**here, "placement.cluster": "prod"})
    there = sent(drawn)
    assert there["cache.l1.size_gib"] == "16", "nobody had changed it"
    assert there["cache.l1.chunk_tokens"] == "64", "somebody had"
    assert "cache.l2.enabled" not in there
    assert "prod has no cache tier" in drawn.content.decode()
    monkeypatch.setattr(spec_context, "tier_clusters", lambda: {"default": "", "near": "prod"})
    again = page.post("/endpoints/new/?drawn=anew", {**here, "placement.cluster": "prod"})
    assert sent(again)["cache.l2.tier"] == "near"
    assert sent(again)["cache.l2.enabled"] == "on"
    back = sent(page.post("/endpoints/new/?drawn=anew", {**there, "placement.cluster": ""}))
    assert back["cache.l1.size_gib"] == "1"


def test_weights_version_of_an_existing_endpoint_has_a_button(
    page: Client, placed: Endpoint
) -> None:
    text = page.get(f"/endpoints/{placed.name}/edit/").content.decode()
    assert 'data-fill="id_source.weights_version"' in text
    assert "Weights changed" in text
    assert 'data-only-on="source.type" data-only="- huggingface s3 fsx pvc"' in text, "never hidden"
    new = page.post("/endpoints/new/?drawn=anew", {"placement.cluster": "prod"}).content.decode()
    assert 'name="source.weights_version"' in new
    assert "Weights changed" not in new
