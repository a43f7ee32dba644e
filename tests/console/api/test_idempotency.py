"""Rules of every API view: known parameters, ETags, idempotency keys, dry runs."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone
from rest_framework.test import APIClient

from console.api import idempotency
from console.api.models import GivenAnswer
from console.audit.models import AuditEvent
from console.people import token_actions as accounts
from endpoints import actions as endpoint_actions
from endpoints.keys import storage
from endpoints.models import Endpoint, EndpointStatus, Revision
from tests.support.console import make_endpoint, person, program

pytestmark = pytest.mark.django_db
URL = "/api/v1/endpoints/"
ONE = f"{URL}demo/"
LEAST = {"name": "demo", "model": "smollm2-135m-instruct"}


@pytest.fixture
def api(db: None) -> APIClient:
    return program("operator")


@pytest.mark.parametrize(
    ("query", "field", "code"),
    [
        ("?phse=Ready", "phse", "unknown_parameter"),
        ("?page=2", "page", "unknown_parameter"),
        ("?phase=Redy", "phase", "invalid_parameter"),
        ("?watch=1", "watch", "invalid_parameter"),
        ("?watch=true&watch=false", "watch", "repeated_parameter"),
        ("?page_size=0", "page_size", "invalid_parameter"),
        ("?page_size=ten", "page_size", "invalid_parameter"),
        ("?search=%00", "search", "invalid_parameter"),
        ("?cursor=zzz", "cursor", "invalid_cursor"),
    ],
)
def test_unexpected_parameter_is_rejected(
    api: APIClient, query: str, field: str, code: str
) -> None:
    answer = api.get(URL + query)
    body = answer.json()
    assert (answer.status_code, body["field"], body["code"]) == (400, field, code)
    assert body["remedy"]


def test_missing_permission_is_reported_before_other_errors(db: None) -> None:
    assert APIClient().get(f"{URL}?phse=Ready").status_code == 401


def test_parameters_of_writes_are_validated(api: APIClient) -> None:
    assert api.post(f"{URL}?dryrun=true", LEAST).json()["code"] == "unknown_parameter"
    assert not Endpoint.objects.exists(), "a misspelt dry run must not create"


def test_lists_are_filtered_by_any_of_several_values(api: APIClient) -> None:
    for name in ("one", "two", "three"):
        make_endpoint(name)
    EndpointStatus.objects.filter(endpoint__name="one").update(phase="Ready")
    endpoint_actions.delete(endpoint_actions.SYSTEM, "two")

    def names(query: str) -> list[str]:
        return [one["name"] for one in api.get(f"{URL}?{query}").json()["results"]]

    assert names("phase=Ready") == ["one"]
    assert names("phase=Deleting") == ["two"]
    assert names("phase=Ready&phase=Pending") == ["one", "three"]
    assert names("search=T") == ["one", "three", "two"], "the model's name has one"
    assert names("search=hre") == ["three"]
    assert names("strategy=session") == []


def test_unchanged_resource_returns_304(api: APIClient) -> None:
    make_endpoint()
    for url in (ONE, URL, f"{ONE}revisions/", "/api/v1/me/"):
        first = api.get(url)
        tag = first.headers["ETag"]
        again = api.get(url, headers={"If-None-Match": f'"other", W/{tag}'})
        assert (again.status_code, again.content) == (304, b""), url
        assert again.headers["ETag"] == tag
        assert api.get(url, headers={"If-None-Match": '"other"'}).status_code == 200
    tag = api.get(ONE).headers["ETag"]
    EndpointStatus.objects.update(message="Something else is seen.")
    assert api.get(ONE, headers={"If-None-Match": tag}).status_code == 200


def test_etag_follows_the_spec_not_the_status(api: APIClient) -> None:
    make_endpoint()
    tag = api.get(ONE).headers["ETag"]
    EndpointStatus.objects.update(message="Something else is seen.")
    assert api.patch(ONE, {"replicas": 2}, headers={"If-Match": tag}).status_code == 200
    late = api.patch(ONE, {"replicas": 3}, headers={"If-Match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "stale")
    assert Endpoint.objects.get().parsed.replicas == 2
    assert api.patch(ONE, {"replicas": 3}, headers={"If-Match": "*"}).status_code == 200


@pytest.mark.parametrize(
    ("text", "status", "code"),
    [
        ("x", 400, "invalid_etag"),
        ("-1", 400, "invalid_etag"),
        ("9" * 40, 400, "invalid_etag"),
        ('"x-1"', 412, "stale"),
        ('"1-zz"', 412, "stale"),
        ('W/"of-another-console"', 412, "stale"),
        ('"1", "2"', 412, "stale"),
    ],
)
def test_foreign_etag_changes_nothing(api: APIClient, text: str, status: int, code: str) -> None:
    make_endpoint()
    answer = api.patch(ONE, {"replicas": 2}, headers={"If-Match": text})
    assert (answer.status_code, answer.json()["code"]) == (status, code)
    assert Endpoint.objects.get().generation == 1


class TestIdempotency:
    KEY = {"Idempotency-Key": "one"}

    def test_repeated_request_gets_the_first_response(self, api: APIClient) -> None:
        make_endpoint()
        url = f"{ONE}keys/"
        first = api.post(url, {"name": "app"}, headers=self.KEY)
        again = api.post(url, {"name": "app"}, headers=self.KEY)
        assert (first.status_code, again.status_code) == (201, 201)
        assert again.json() == first.json()
        assert again.headers["Idempotency-Replayed"] == "true"
        assert again.headers["Cache-Control"] == "no-store"
        assert "Idempotency-Replayed" not in first.headers
        assert first.json()["key"] not in GivenAnswer.objects.get().sealed
        assert AuditEvent.objects.filter(verb="key.create").count() == 1

    def test_replayed_response_can_be_used_to_change_the_endpoint(self, api: APIClient) -> None:
        tags = [api.post(URL, LEAST, headers=self.KEY).headers["ETag"] for _ in range(2)]
        assert tags[0] == tags[1]
        assert tags[0].startswith('"1-')

    def test_different_request_with_the_key_is_rejected(self, api: APIClient) -> None:
        api.post(URL, LEAST, headers=self.KEY)
        other = api.post(URL, {**LEAST, "name": "other"}, headers=self.KEY)
        assert (other.status_code, other.json()["code"]) == (422, "idempotency_key_reused")
        elsewhere = api.post(f"{ONE}keys/", LEAST, headers=self.KEY)
        assert elsewhere.status_code == 422
        assert not Endpoint.objects.filter(name="other").exists()

    def test_rejected_create_can_be_corrected(self, api: APIClient) -> None:
        assert api.post(URL, {"name": "demo"}, headers=self.KEY).status_code == 400
        assert not GivenAnswer.objects.exists()
        assert api.post(URL, LEAST, headers=self.KEY).status_code == 201

    def test_keys_are_separate_for_each_caller(self, api: APIClient) -> None:
        make_endpoint()
        api.post(f"{ONE}keys/", {"name": "app"}, headers=self.KEY)
        other = program("admin").post(f"{ONE}keys/", {"name": "app"}, headers=self.KEY)
        assert other.json()["code"] == "name_taken"

    def test_replayed_response_is_hidden_from_other_tokens(self, db: None) -> None:
        make_endpoint()
        answers = []
        for label in ("a", "b"):
            _, clear = accounts.create_token(person("operator"), label, "operator")
            client = APIClient(headers={"Authorization": f"Bearer {clear}"})
            answers.append(client.post(f"{ONE}keys/", {"name": "app"}, headers=self.KEY))
        assert [answer.status_code for answer in answers] == [201, 400]

    def test_permissions_are_checked_before_a_replay(self, api: APIClient) -> None:
        api.post(URL, LEAST, headers=self.KEY)
        user = person("operator")
        user.role = "viewer"
        user.save()
        demoted = APIClient()
        demoted.force_authenticate(user)
        assert demoted.post(URL, LEAST, headers=self.KEY).status_code == 403

    @pytest.mark.parametrize("key", ["", "x" * 256, "ä"])
    def test_invalid_key_is_rejected(self, api: APIClient, key: str) -> None:
        answer = api.post(URL, LEAST, headers={"Idempotency-Key": key})
        assert (answer.status_code, answer.json()["field"]) == (400, "Idempotency-Key")

    def test_key_expires_after_a_day(self, api: APIClient) -> None:
        api.post(URL, LEAST, headers=self.KEY)
        old = timezone.now() - idempotency.RETENTION - timedelta(seconds=1)
        GivenAnswer.objects.update(created_at=old)
        assert api.post(URL, LEAST, headers=self.KEY).json()["code"] == "name_taken"
        GivenAnswer.objects.create(caller="x", key="y", created_at=old)
        assert idempotency.prune() == 2
        assert not GivenAnswer.objects.exists()

    def test_unreadable_stored_response_is_reported_as_lost(self, api: APIClient) -> None:
        api.post(URL, LEAST, headers=self.KEY)
        GivenAnswer.objects.update(sealed="gAAAA-of-another-key")
        lost = api.post(URL, LEAST, headers=self.KEY)
        assert (lost.status_code, lost.json()["code"]) == (409, "idempotency_answer_lost")


@pytest.mark.django_db(transaction=True)
def test_concurrent_requests_with_one_key_create_one(db: None) -> None:
    person("operator")
    together = threading.Barrier(4)
    answers: list[Any] = []

    def send() -> None:
        try:
            client = program("operator")
            together.wait(60)
            answers.append(client.post(URL, LEAST, headers={"Idempotency-Key": "race"}))
        finally:
            connection.close()

    threads = [threading.Thread(target=send) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [answer.status_code for answer in answers] == [201] * 4
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("Idempotency-Replayed" in answer.headers for answer in answers) == 3
    assert Revision.objects.count() == 1


class TestDryRun:
    def kept(self) -> tuple[Any, ...]:
        rows = Endpoint.objects.values_list("name", "spec", "generation", "deleted_at")
        return list(rows), AuditEvent.objects.count(), Revision.objects.count()

    def test_dry_run_of_a_create_is_complete_and_leaves_nothing(self, api: APIClient) -> None:
        storage.remove_console_key("demo")  # of another test: files outlive its database
        before = self.kept()
        answer = api.post(f"{URL}?dry_run=true", LEAST, headers={"Idempotency-Key": "k"})
        body = answer.json()
        assert (answer.status_code, body["dry_run"], body["action"]) == (200, True, "create")
        assert {"name", "model"} <= {change["field"] for change in body["changes"]}
        assert self.kept() == before
        assert not storage.console_key_file("demo").exists()
        assert not GivenAnswer.objects.exists()
        assert api.post(URL, LEAST, headers={"Idempotency-Key": "k"}).status_code == 201

    @pytest.mark.parametrize(
        ("method", "path", "body", "action", "fields"),
        [
            ("patch", "", {"replicas": 3}, "update", {"replicas"}),
            ("put", "", {**LEAST, "replicas": 3}, "update", {"replicas"}),
            ("post", "scale/", {"replicas": 1}, "unchanged", set()),
            ("post", "pause/", {}, "update", {"replicas"}),
            ("post", "resume/", {}, "unchanged", set()),
            ("post", "rollback/", {"revision": 1}, "unchanged", set()),
            ("delete", "", {}, "delete", set()),
        ],
    )
    def test_every_write_supports_dry_run(
        self, api: APIClient, method: str, path: str, body: Any, action: str, fields: set[str]
    ) -> None:
        api.post(URL, LEAST)
        before = self.kept()
        answer = getattr(api, method)(f"{ONE}{path}?dry_run=true", body)
        assert answer.status_code == 200, answer.content
        would = answer.json()
        assert (would["name"], would["action"]) == ("demo", action)
        assert fields <= {change["field"] for change in would["changes"]}
        assert bool(would["changes"]) is bool(fields)
        assert self.kept() == before

    def test_dry_run_is_rejected_like_the_write(self, api: APIClient) -> None:
        make_endpoint()
        refusals = [
            api.post(f"{URL}?dry_run=true", LEAST),
            api.patch(f"{ONE}?dry_run=true", {"replicas": -1}),
            program("viewer").patch(f"{ONE}?dry_run=true", {"replicas": 2}),
            api.patch(f"{ONE}?dry_run=true", {"replicas": 2}, headers={"If-Match": '"7"'}),
            api.delete(f"{ONE}?dry_run=true&abandon=true"),
        ]
        assert [one.status_code for one in refusals] == [400, 400, 403, 412, 400]


@pytest.mark.parametrize(
    ("url", "first", "change"),
    [
        ("/api/v1/cache-tiers/", {"memory_bytes": 1 << 27}, {"memory_bytes": 1 << 28}),
        ("/api/v1/clusters/", {"kind": "in-cluster", "reach": "pods"}, {"namespace": "other"}),
    ],
)
def test_tiers_and_clusters_follow_the_same_rules(
    url: str, first: dict[str, Any], change: dict[str, Any]
) -> None:
    api, one = program("admin"), f"{url}west/"
    data = {"name": "west", **first}
    would = api.post(f"{url}?dry_run=true", data).json()
    assert (would["action"], would["name"]) == ("create", "west")
    assert {"field", "label", "before", "after", "effect"} == set(would["changes"][0])
    assert api.get(one).status_code == 404
    made = [api.post(url, data, headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 201]
    assert made[0].json() == made[1].json()
    ((field, value),) = change.items()
    would = api.patch(f"{one}?dry_run=true", change).json()
    assert [(c["field"], c["after"]) for c in would["changes"]] == [(field, value)]
    same = dict(list(first.items())[-1:])
    again = api.patch(f"{one}?dry_run=true", same).json()
    assert again["action"] == "unchanged"
    tag = api.get(one).headers["ETag"]
    assert api.patch(one, change, headers={"If-Match": tag}).status_code == 200
    for late in (
        api.patch(one, change, headers={"If-Match": tag}),
        api.delete(one, headers={"If-Match": tag}),
    ):
        assert (late.status_code, late.json()["code"]) == (412, "stale")
    assert api.delete(f"{one}?dry_run=true").json()["action"] == "delete"
    assert api.get(one).json()[field] == value
    assert api.get(f"{url}?search=wes").json()["results"][0]["name"] == "west"
    assert api.get(f"{url}?search=east").json()["results"] == []


def test_instance_type_is_compared_with_the_read_version() -> None:
    api, url = program("admin"), "/api/v1/instance-types/odd.large/"
    facts = {"vcpus": 4, "memory_gib": 16}
    tag = api.put(url, facts).headers["ETag"]
    assert api.get(url, headers={"If-None-Match": tag}).status_code == 304
    assert api.put(url, {**facts, "vcpus": 8}, headers={"If-Match": tag}).status_code == 200
    late = api.put(url, facts, headers={"If-Match": tag})
    assert (late.status_code, late.json()["code"]) == (412, "stale")
    assert api.delete(url, headers={"If-Match": tag}).status_code == 412
    assert api.get(url).json()["vcpus"] == 8


def test_oversized_body_is_not_read(api: APIClient) -> None:
    body = b'{"name": "' + b"x" * (4 * 1024 * 1024) + b'"}'
    answer = api.generic("POST", URL, body, content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity"])
def test_non_finite_numbers_are_rejected(api: APIClient, word: str) -> None:
    answer = api.generic("POST", URL, f'{{"replicas": {word}}}', content_type="application/json")
    assert (answer.status_code, answer.json()["code"]) == (400, "parse_error")
