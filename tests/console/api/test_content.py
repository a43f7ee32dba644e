from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.management import call_command
from django.http import Http404
from django.test import Client
from django.urls import path
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.core import openapi
from console.people import token_actions
from console.urls import handler404, handler500  # noqa: F401  (this module is a URL map too)
from tests.support.people import Cast, client_of

pytestmark = pytest.mark.django_db

SHAPE = {"code", "detail", "field", "value", "remedy", "errors", "request_id"}


@dataclass
class Complaint:
    field: str
    value: Any
    message: str
    remedy: str
    code: str


class Refused(Exception):
    def __init__(self, *errors: Complaint) -> None:
        super().__init__("refused")
        self.errors = list(errors)


class Inner(serializers.Serializer):
    size = serializers.FloatField()


class Shape(serializers.Serializer):
    name = serializers.CharField(max_length=3)
    cache = Inner()
    tags = serializers.ListField(child=serializers.IntegerField())


class Trouble(APIView):
    def get(self, request: Request, kind: str) -> Response:
        errors: dict[str, Exception] = {
            "spec": Refused(
                Complaint("routing.strategy", "kv", "unknown strategy", "use session", "unknown"),
                Complaint("replicas", float("inf"), "too many", "fewer", "too_high"),
            ),
            "missing": Http404("hidden detail"),
            "role": PermissionDenied("This needs the operator role."),
            "django": ValidationError({"name": ["taken"]}),
            "crash": RuntimeError("private-detail"),
        }
        raise errors[kind]

    def post(self, request: Request, kind: str) -> Response:
        Shape(data=request.data).is_valid(raise_exception=True)
        return Response({"kind": kind})


urlpatterns = [path("api/v1/trouble/<kind>/", Trouble.as_view())]


@pytest.fixture
def trouble(settings: Any, people: Cast) -> Client:
    settings.ROOT_URLCONF = __name__
    return client_of(people.alice)


def test_rejected_spec_has_the_error_shape(trouble: Client) -> None:
    response = trouble.get("/api/v1/trouble/spec/", headers={"X-Request-ID": "r-1"})
    body = response.json()
    assert response.status_code == 400
    assert set(body) == SHAPE
    first = {
        "code": "unknown",
        "detail": "unknown strategy",
        "field": "routing.strategy",
        "value": "kv",
        "remedy": "use session",
    }
    assert {name: body[name] for name in first} == first
    assert body["errors"][0] == first
    assert body["errors"][1]["value"] == "inf"
    assert body["request_id"] == "r-1"


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("missing", 404, "not_found"),
        ("role", 403, "permission_denied"),
        ("django", 400, "invalid"),
        ("crash", 500, "server_error"),
    ],
)
def test_every_error_has_the_shape(trouble: Client, kind: str, status: int, code: str) -> None:
    response = trouble.get(f"/api/v1/trouble/{kind}/")
    body = response.json()
    assert (response.status_code, body["code"]) == (status, code)
    assert set(body) == SHAPE
    assert "private-detail" not in response.content.decode()
    assert body["request_id"] == response.headers["X-Request-ID"]


def test_fields_of_a_serializer_are_dotted(trouble: Client) -> None:
    data = {"name": "much too long", "cache": {}, "tags": [1, "x"]}
    response = trouble.post("/api/v1/trouble/x/", data, content_type="application/json")
    assert response.status_code == 400
    fields = {error["field"]: error["code"] for error in response.json()["errors"]}
    assert fields == {"name": "max_length", "cache.size": "required", "tags.1": "invalid"}


def test_broken_json_and_wrong_method(trouble: Client) -> None:
    broken = trouble.post("/api/v1/trouble/x/", "{", content_type="application/json")
    assert (broken.status_code, broken.json()["code"]) == (400, "parse_error")
    assert set(trouble.delete("/api/v1/trouble/x/").json()) == SHAPE
    assert trouble.get("/api/v1/elsewhere/").json()["code"] == "not_found"


@pytest.mark.parametrize(
    ("role", "read", "write"), [("viewer", 200, 403), ("operator", 200, 200), ("admin", 200, 200)]
)
def test_permissions_by_method_with_tokens(
    settings: Any, people: Cast, role: str, read: int, write: int
) -> None:
    _, clear = token_actions.create_token(people.ada, role, role)
    headers = {"Authorization": f"Bearer {clear}"}
    client = Client()
    assert client.get("/api/v1/me/", headers=headers).status_code == read
    settings.ROOT_URLCONF = __name__
    good = {"name": "abc", "cache": {"size": 1}, "tags": []}
    answer = client.post(
        "/api/v1/trouble/x/", good, content_type="application/json", headers=headers
    )
    assert answer.status_code == write


def test_session_needs_its_csrf_token(settings: Any, people: Cast) -> None:
    settings.ROOT_URLCONF = __name__
    client = Client(enforce_csrf_checks=True)
    client.force_login(people.alice)
    answer = client.post("/api/v1/trouble/x/", {}, content_type="application/json")
    assert answer.status_code == 403
    assert "CSRF" in answer.json()["detail"]


def test_rate_limit_states_the_retry_time(people: Cast, monkeypatch: Any) -> None:
    from console.api.access import CallerThrottle

    monkeypatch.setattr(CallerThrottle, "get_rate", lambda self: "2/min")
    client = client_of(people.charlie)
    statuses = [client.get("/api/v1/me/").status_code for _ in range(3)]
    assert statuses == [200, 200, 429]
    refused = client.get("/api/v1/me/")
    assert refused.json()["code"] == "throttled"
    assert int(refused.headers["Retry-After"]) > 0


def test_rate_limits_do_not_follow_the_wall_clock() -> None:
    """Else a clock that was a day ahead refuses every request for a day once it is right."""
    from console.api.access import AnonymousThrottle, CallerThrottle

    assert CallerThrottle.timer is AnonymousThrottle.timer is time.monotonic


def test_document_describes_every_rest_path(people: Cast) -> None:
    client = client_of(people.charlie)
    document = client.get("/api/v1/schema/", headers={"Accept": "application/json"}).json()
    assert document["openapi"].startswith("3.1")
    assert "/api/v1/me/" in document["paths"]
    assert document["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    html = client.get("/api/v1/docs/").content.decode()
    for url in document["paths"]:
        assert url in html


def test_document_is_valid_without_warnings(tmp_path: Path) -> None:
    target = tmp_path / "schema.yml"
    call_command("spectacular", validate=True, fail_on_warn=True, file=str(target))
    assert "/api/v1/me/" in target.read_text()


def test_operations_are_flattened_for_the_page() -> None:
    document = {
        "paths": {
            "/x/": {
                "post": {
                    "operationId": "x_create",
                    "tags": ["x"],
                    "requestBody": {
                        "content": {
                            "application/json": {"schema": {"$ref": "#/components/schemas/X"}}
                        }
                    },
                    "responses": {"201": {"description": "made"}},
                }
            }
        },
        "components": {
            "schemas": {
                "X": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {
                        "id": {"type": "integer", "readOnly": True},
                        "name": {"type": "string", "description": "what to call it"},
                        "inner": {"$ref": "#/components/schemas/Inner"},
                        "again": {"$ref": "#/components/schemas/X"},
                    },
                },
                "Inner": {"type": "object", "properties": {"size": {"enum": [1, 2]}}},
            }
        },
    }
    ((tag, (operation,)),) = openapi.group_operations(document)
    assert (tag, operation.method, operation.path) == ("x", "POST", "/x/")
    fields = {field.name: field for field in operation.fields}
    assert fields["name"].required
    assert fields["inner.size"].kind == "1 | 2"
    assert "id" not in fields
    assert '"size": 1' in operation.example


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b'{"name": "\\ud800", "cache": {"size": 1}, "tags": []}', "surrogate"),
        (b'{"\\ud800": 1}', "surrogate"),
        (b'{"name": "a\\u0000b", "cache": {"size": 1}, "tags": []}', "NUL"),
        (b'{"\\u0000": 1}', "NUL"),
        (b"[" * 100_000, "nested too deep"),
        (b'{"a":' * 100_000, "nested too deep"),
    ],
)
def test_json_that_cannot_be_stored_is_rejected(trouble: Client, body: bytes, words: str) -> None:
    answer = trouble.post("/api/v1/trouble/x/", body, content_type="application/json")
    assert answer.status_code == 400
    assert words in answer.json()["detail"]


def test_surrogate_pair_is_one_character(trouble: Client) -> None:
    body = b'{"name": "\\ud83d\\ude00", "cache": {"size": 1}, "tags": []}'
    answer = trouble.post("/api/v1/trouble/x/", body, content_type="application/json")
    assert answer.status_code == 200


def test_options_is_rejected_cleanly(people: Cast) -> None:
    assert client_of(people.alice).options("/api/v1/endpoints/demo/").status_code == 405
