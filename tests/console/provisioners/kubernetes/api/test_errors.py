"""Real API server errors and the resulting `ProvisionError`s."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

from console.provisioners.base import PermanentError, ProvisionError, TemporaryError
from console.provisioners.kubernetes.api import kinds
from console.provisioners.kubernetes.api.errors import (
    ApiRequest,
    error_from_status,
    unreachable_error,
    untrusted_error,
)

PATCH = ApiRequest("patch", kinds.DEPLOYMENT, "models", "demo-worker")
SCALER = ApiRequest("patch", kinds.SCALED_OBJECT, "models", "demo-worker")


def make_status(message: str, reason: str = "", **details: Any) -> dict[str, Any]:
    return {"kind": "Status", "message": message, "reason": reason, "details": details}


FORBIDDEN = make_status(
    'deployments.apps "demo-worker" is forbidden: User "system:serviceaccount:ops:emberline" '
    'cannot patch resource "deployments" in API group "apps" in the namespace "models"',
    "Forbidden",
    name="demo-worker",
    group="apps",
    kind="deployments",
)
QUOTA = make_status(
    'services "demo" is forbidden: exceeded quota: team, requested: services=1, used: '
    "services=5, limited: services=5",
    "Forbidden",
)
ENDING = make_status(
    'configmaps "demo" is forbidden: unable to create new content in namespace models because '
    "it is being terminated",
    "Forbidden",
    causes=[{"reason": "NamespaceTerminating", "field": "metadata.namespace"}],
)
CONFLICT = make_status(
    "Apply failed with 2 conflicts",
    "Conflict",
    causes=[
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "kubectl-edit" using apps/v1 at 2026-01-01T00:00:00Z',
            "field": ".spec.replicas",
        },
        {
            "reason": "FieldManagerConflict",
            "message": 'conflict with "argocd" using apps/v1',
            "field": '.spec.template.spec.containers[name="worker"].image',
        },
    ],
)
WEBHOOK = make_status(
    'admission webhook "policy.example" denied the request: images must come from ours', "Forbidden"
)
CASES = [
    (401, make_status("Unauthorized", "Unauthorized"), PATCH, "ClusterRefused", "credentials"),
    (403, FORBIDDEN, PATCH, "ClusterRefused", '["apps"], resources ["deployments"], verbs ["pat'),
    (403, QUOTA, PATCH, "QuotaExceeded", "limited: services=5. Raise the ResourceQuota"),
    (403, ENDING, PATCH, "NamespaceEnding", "Namespace models is being deleted"),
    (403, WEBHOOK, PATCH, "RefusedByCluster", "images must come from ours"),
    (404, {}, SCALER, "MissingCapability", "scaledobjects.keda.sh .* Install KEDA"),
    (
        404,
        make_status('namespaces "models" not found', "NotFound", name="models", kind="namespaces"),
        PATCH,
        "NamespaceMissing",
        "kubectl create namespace models",
    ),
    (409, CONFLICT, PATCH, "FieldConflict", "set by kubectl-edit.*set by argocd.*Heal.*Adopt"),
    (
        409,
        make_status("object is being deleted: x", "AlreadyExists"),
        PATCH,
        "StillStopping",
        "deleted",
    ),
    (
        409,
        make_status('"x" already exists', "AlreadyExists"),
        PATCH,
        "ClusterBusy",
        "created it first",
    ),
    (
        409,
        make_status("the object has been modified", "Conflict"),
        PATCH,
        "ClusterBusy",
        "same time",
    ),
    (
        422,
        make_status('Deployment "x" is invalid: spec.y', "Invalid"),
        PATCH,
        "RefusedByCluster",
        "spec",
    ),
    (
        400,
        make_status('strict decoding error: unknown field "x"'),
        PATCH,
        "RefusedByCluster",
        "unknown",
    ),
    (429, make_status("too many", "TooManyRequests"), PATCH, "ClusterBusy", "too many"),
    (
        500,
        make_status("failed to create typed patch object: .spec.x: field not declared in schema"),
        PATCH,
        "RefusedByCluster",
        "not declared",
    ),
    (500, make_status("etcdserver: request timed out"), PATCH, "ClusterBusy", "etcdserver"),
    (503, {}, PATCH, "ClusterBusy", "HTTP 503"),
    (504, make_status("x", "Timeout"), PATCH, "ClusterBusy", "x"),
]
TEMPORARY = {"QuotaExceeded", "NamespaceEnding", "StillStopping", "ClusterBusy"}


@pytest.mark.parametrize(("status", "body", "api_request", "reason", "words"), CASES)
def test_each_error_has_a_reason_and_a_remedy(
    status: int, body: dict[str, Any], api_request: ApiRequest, reason: str, words: str
) -> None:
    error = error_from_status(status, body, api_request)
    assert error.reason == reason
    assert re.search(re.escape(words) if "[" in words else words, error.message)
    assert type(pickle.loads(pickle.dumps(error))) is type(error)
    kind: type[ProvisionError] = TemporaryError if reason in TEMPORARY else PermanentError
    assert isinstance(error, kind)


def test_subresource_is_named_as_in_the_role() -> None:
    error = error_from_status(
        403, FORBIDDEN, ApiRequest("get", kinds.POD, "models", "demo-0", "log")
    )
    assert 'resources ["pods/log"], verbs ["get"]' in error.message


def test_retry_after_of_the_server_is_used() -> None:
    error = error_from_status(429, {}, PATCH, retry_after_s=7)
    assert isinstance(error, TemporaryError)
    assert error.delay_s == 7
    late = error_from_status(429, {}, PATCH, retry_after_s=86400)
    assert isinstance(late, TemporaryError)
    assert late.delay_s == 60


def test_long_server_message_is_cut() -> None:
    assert len(error_from_status(400, make_status("x" * 10_000), PATCH).message) < 800


def test_silence_is_temporary_and_an_untrusted_certificate_is_not() -> None:
    silent, foreign = unreachable_error(PATCH, "refused"), untrusted_error(PATCH, "self-signed")
    assert isinstance(silent, TemporaryError)
    assert silent.reason == "ClusterUnreachable"
    assert isinstance(foreign, PermanentError)
    assert "own CA" in foreign.message
