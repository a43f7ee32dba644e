"""Rights for followed objects: checked where used, displayed and printed."""

from __future__ import annotations

from io import StringIO
from typing import Any

import pytest
import yaml
from django.core.management import CommandError, call_command

from console.clusters import refresh, selectors
from endpoints.actions import SYSTEM
from endpoints.controller import actions as follows
from tests.console.clusters.test_views import add, program
from tests.support.http_stub import Stub
from tests.support.people import Cast, client_of

pytestmark = pytest.mark.django_db
REVIEWS = "/apis/authorization.k8s.io/v1"


def emberline(*words: str) -> str:
    out = StringIO()
    call_command("emberline", "cluster", *words, stdout=out)
    return out.getvalue()


def roles(text: str) -> dict[str, set[str]]:
    """Resources by the namespace in which they are granted."""
    found: dict[str, set[str]] = {}
    for one in yaml.safe_load_all(text):
        for rule in one.get("rules", ()):
            found.setdefault(one["metadata"].get("namespace", ""), set()).update(rule["resources"])
    return found


@pytest.fixture
def refusing(api: Stub) -> Stub:
    """A cluster which grants what workloads need in any namespace, and nothing across it."""
    api.answers[f"{REVIEWS}/selfsubjectaccessreviews"] = (201, {"status": {"allowed": False}})
    rule: dict[str, Any] = {"verbs": ["*"], "apiGroups": ["*"]}
    status = {"resourceRules": [{**rule, "resources": [one]} for one in WORKLOADS]}
    api.answers[f"{REVIEWS}/selfsubjectrulesreviews"] = (201, {"status": status})
    return api


WORKLOADS = (
    *("configmaps", "secrets", "services", "persistentvolumeclaims", "serviceaccounts", "roles"),
    *("rolebindings", "deployments", "statefulsets", "poddisruptionbudgets", "networkpolicies"),
    *("ingresses", "horizontalpodautoscalers", "scaledobjects"),
    *("gateways", "httproutes", "certificates", "podmonitors"),
    *("prometheusrules", "pods", "pods/log", "replicasets", "endpointslices", "events"),
)


def test_followed_namespace_is_shown_with_missing_rights(people: Cast, refusing: Stub) -> None:
    cluster = add(people, refusing.url)
    page = client_of(people.charlie)
    assert "inferenceendpointconfigs" not in page.get("/clusters/work/").text
    follows.follow(SYSTEM, "work", "team-a")
    refresh.refresh(str(cluster.pk))
    text = page.get("/clusters/work/").text
    for shown in ("list, patch, in team-a: objects are neither followed nor released", "optional"):
        assert shown in text
    found = selectors.get("work")
    assert found is not None
    assert found.status.phase == "Ready", "what only following needs makes no cluster worse"
    document = program(people.charlie).get("/api/v1/clusters/work/").json()["rights"]
    assert {one["namespace"] for one in document["missing"]} == {"", "team-a"}
    by_space = roles(document["manifest"])
    assert {"inferenceendpointconfigs", "deployments"} <= by_space["team-a"]
    assert "customresourcedefinitions" in by_space[""]
    assert "llm" not in by_space, "nothing is missing there"
    status = "inferenceendpointconfigs/status.inference.sagemaker.aws.amazon.com"
    line = f"missing right (optional): patch {status} in team-a: object status is not updated"
    assert line in emberline("check", "work")


def test_role_is_printed_before_a_namespace_is_followed(people: Cast, api: Stub) -> None:
    with pytest.raises(CommandError, match="Unknown cluster work"):
        emberline("role", "work", "--follow")
    add(people, api.url)
    assert emberline("role", "work").startswith("# work grants all required permissions.")
    plain = roles(emberline("role", "work", "--namespace", "team-a"))
    assert set(plain) == {"team-a", ""}
    assert "deployments" in plain["team-a"]
    assert "inferenceendpointconfigs" not in plain["team-a"]
    assert "customresourcedefinitions" not in plain[""]
    more = roles(emberline("role", "work", "--namespace", "team-a", "--follow"))
    assert more["team-a"] - plain["team-a"] == {
        "inferenceendpointconfigs",
        "inferenceendpointconfigs/status",
    }
    assert more[""] - plain[""] == {"customresourcedefinitions"}
    assert "llm" in roles(emberline("role", "work", "--follow"))
