"""Errors name every invalid field of a request at once, in REST and in forms."""

from __future__ import annotations

from typing import Any

import pytest

from console.core.errors import Gathered, Problem, Refused
from endpoints.pages.editor.form_fields import parse_value
from endpoints.spec.fields import BY_PATH
from tests.support.console import browser, make_endpoint, program

BAD: list[tuple[str, dict[str, Any], set[str]]] = [
    ("receivers", {"name": "A B", "url": "ftp://x", "secret": "a\nb"}, {"name", "url", "secret"}),
    ("receivers", {"name": "", "kind": "email", "to": ["nobody"]}, {"name", "to"}),
    ("receivers", {"name": "A", "kind": "post", "everything": []}, {"name", "kind", "everything"}),
    (
        "alert-routes",
        {"receiver": "", "matchers": "=", "group_by": "a-b", "repeat_interval": "soon"},
        {"receiver", "matchers", "group_by", "repeat_interval"},
    ),
    (
        "silences",
        {"matchers": "=", "duration": "long", "comment": ""},
        {"matchers", "duration", "comment"},
    ),
    ("budgets", {"name": "", "whose": "mine", "usd": -1}, {"name", "whose", "usd"}),
    (
        "alert-rules",
        {"name": "1", "expr": "", "for": "long", "severity": "loud"},
        {"name", "expr", "for", "severity"},
    ),
    ("clusters", {"name": "A", "kind": "cloud", "reach": "far"}, {"name", "kind", "reach"}),
    ("endpoints", {"name": "A B", "model": "", "replicas": -1}, {"name", "model", "replicas"}),
]


@pytest.mark.django_db
@pytest.mark.parametrize(("path", "body", "fields"), BAD)
def test_every_invalid_field_is_named_at_once(
    path: str, body: dict[str, Any], fields: set[str]
) -> None:
    answer = program("admin").post(f"/api/v1/{path}/", body, format="json")
    assert answer.status_code == 400, answer.text
    errors = answer.json()["errors"]
    assert {one["field"] for one in errors} >= fields, errors
    assert all(one["detail"] and one["remedy"] for one in errors)


HIDDEN = "hunter2-correct-horse"


@pytest.mark.django_db
@pytest.mark.parametrize("path", [path for path, *_ in BAD] + ["users", "metrics-sources"])
def test_secrets_are_not_repeated(path: str) -> None:
    """Of known fields, of unknown ones, and in URLs."""
    secret = {
        **dict.fromkeys(("password", "secret", "token", "api_key", "kubeconfig"), HIDDEN),
        "url": f"ftp://ada:{HIDDEN}@example.org/x",
        "cache": {"l2": {"enabled": 7, "url": f"redis://ada:{HIDDEN}@cache:6379 x"}},
        "basic_auth": {"password": HIDDEN},
    }
    answer = program("admin").post(f"/api/v1/{path}/", {"name": "a", **secret}, format="json")
    assert answer.status_code == 400, answer.text
    assert answer.json()["errors"]
    assert HIDDEN not in answer.text


@pytest.mark.parametrize(
    ("field", "value", "shown"),
    [
        ("settings.smtp_password", "x", "***"),
        ("secret", "x", "***"),
        ("headers[Authorization]", "Bearer x", "***"),
        ("source.token_secret", "hf", "hf"),  # the name of a Secret
        ("tokens", 5, 5),
        ("url", "redis://u:p@h:1/0", "redis://***@h:1/0"),
        ("body", {"password": "x", "urls": ["http://a:b@c"]}, None),
    ],
)
def test_secrets_are_hidden_in_a_problem(field: str, value: Any, shown: Any) -> None:
    shown = {"password": "***", "urls": ["http://***@c"]} if field == "body" else shown
    problem = Problem(field, value, "No such thing: https://u:p@h.", "", "invalid")
    assert problem.value == shown
    assert problem.message == "No such thing: https://***@h."


@pytest.mark.django_db
def test_form_shows_every_invalid_field() -> None:
    typed = {"name": "On Call", "url": "ftp://x", "secret": ""}
    page = browser("admin").post("/alerts/receivers/new/?kind=webhook", typed).text
    for field in ("name", "url"):
        assert f'aria-describedby="id_{field}_error' in page or f'id="id_{field}_error"' in page


@pytest.mark.django_db
def test_invalid_field_writes_nothing() -> None:
    api = program("admin")
    made = {"name": "on-call", "url": "https://hooks.example.org/x"}
    assert api.post("/api/v1/receivers/", made, format="json").status_code == 201
    bad = {"enabled": False, "url": "ftp://x"}
    assert api.patch("/api/v1/receivers/on-call/", bad, format="json").status_code == 400
    assert api.get("/api/v1/receivers/on-call/").json()["enabled"] is True


@pytest.mark.django_db
def test_tags_are_written_as_on_the_command_line() -> None:
    make_endpoint("red", tags={"team": "red"})
    body = {"name": "blue", "model": "smollm2-135m-instruct", "engine": "simulated"}
    made = program("admin").post("/api/v1/endpoints/", {**body, "tags": "team=blue"}, format="json")
    assert made.status_code == 201, made.text
    assert made.json()["spec"]["tags"] == {"team": "blue"}


def test_other_errors_end_the_request() -> None:
    def missing() -> None:
        raise Refused(Problem("name", "x", "No such thing.", "", "not_found"), status_code=404)

    gathered = Gathered()
    with pytest.raises(Refused) as caught:
        gathered.take(missing)
    assert caught.value.status_code == 404
    gathered.end()


@pytest.mark.django_db
def test_form_takes_tags_as_pairs_and_as_yaml() -> None:
    """The form's text uses the same field as REST."""
    field = BY_PATH["tags"]
    for typed in ("team=red\napp=chat", "team=red, app=chat", "team: red\napp: chat"):
        value, problem = field.accept(parse_value(field, typed))
        assert (value, problem) == ({"team": "red", "app": "chat"}, None)
    value, problem = field.accept(parse_value(field, "team=red, loose"))
    assert problem is not None
    assert "team=search" in problem[1]
    assert field.accept("=x")[1] is not None, "an empty name"
