"""Preview equals the reconciler's rendering, without secrets and side effects."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.api.spec_checks import parse_nameless
from endpoints.models import Endpoint
from endpoints.pages.editor.feedback import command_lines
from endpoints.placement.installation import installation
from endpoints.placement.preview import HIDDEN, PLACEHOLDER_ADDRESS, preview
from endpoints.spec.endpoint_spec import merge
from endpoints.workload.worker_spec import L2Access, worker_spec
from tests.support.people import cast, client_of

pytestmark = pytest.mark.django_db
LOCAL: dict[str, Any] = {"name": "chat", "model": "org/some-model", "engine": "vllm"}


def test_local_preview_is_the_command_of_the_reconciler() -> None:
    spec = parse_nameless(LOCAL)
    found = preview(spec)
    assert found.argv == worker_spec(spec, installation(spec)).argv
    assert "--kv-transfer-config" in found.argv, "L1 is on"
    assert not found.objects


def test_password_is_masked_and_not_read() -> None:
    l2 = {"enabled": True, "backend": "redis", "url": "redis://c:6379", "password_file": "/nowhere"}
    spec = parse_nameless(merge(LOCAL, {"cache": {"l2": l2}}))
    found = preview(spec)
    workload = worker_spec(spec, installation(spec), L2Access("redis://c:6379", "/nowhere"))
    (variable,) = workload.secret_env
    assert found.env[variable] == HIDDEN


def test_unknown_tier_address_is_named() -> None:
    spec = parse_nameless(merge(LOCAL, {"cache": {"l2": {"enabled": True}}}))
    found = preview(spec)
    assert any(PLACEHOLDER_ADDRESS in word for word in (*found.argv, *found.env.values()))
    assert PLACEHOLDER_ADDRESS in found.notes[0]


def test_missing_cluster_is_reported() -> None:
    found = preview(parse_nameless(merge(LOCAL, {"placement": {"cluster": "nowhere"}})))
    assert found.refused.startswith("UnknownCluster: ")
    assert not found.objects


def test_rest_and_page_previews_create_nothing() -> None:
    people = cast()
    alice = client_of(people.alice)
    answer = alice.post("/api/v1/preview/", LOCAL, content_type="application/json")
    assert answer.status_code == 200, answer.content
    assert "--served-model-name" in answer.json()["command"]
    page = alice.post("/endpoints/new/preview/", {"model": "org/some-model", "engine": "vllm"})
    assert "--served-model-name" in page.content.decode()
    assert not Endpoint.objects.exists()
    charlie = client_of(people.charlie)
    assert charlie.post("/endpoints/new/preview/", {}).status_code == 403
    refused = charlie.post("/api/v1/preview/", LOCAL, content_type="application/json")
    assert refused.status_code == 403
    assert alice.get("/endpoints/nobody/preview/").status_code == 404


def test_each_flag_is_on_its_own_line() -> None:
    argv = ("python3", "-m", "vllm", "--host", "{host}", "--enforce-eager", "--served", "a", "b")
    assert command_lines(argv) == [
        "python3",
        "-m vllm",
        "--host {host}",
        "--enforce-eager",
        "--served a",
        "b",
    ]
