"""Shared prefixes: detection, names, and agreement of an endpoint's routers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from console.audit import selectors as audit
from endpoints.models import Endpoint
from endpoints.router import prefix_names as actions
from endpoints.router.compiler import compile_config, compile_keys, hash_key
from endpoints.router.models import PrefixName
from endpoints.router.workload import router_spec
from routing.analysis.prefixes import find_name, group_prefixes
from routing.engine.config import parse
from tests.endpoints.router.test_compiler import ENDPOINT
from tests.support.console import browser, make_endpoint, person, pretend_ready, program
from tests.support.http_stub import Stub, http_stub

PAGE = "/routing/endpoints/demo/prefixes/"
A, B, C, D = (letter * 16 for letter in "abcd")


def record(prefix: list[str], worker: str = "w0", cached: int | None = None) -> dict[str, Any]:
    tokens = 64 * len(prefix) + 32
    return {
        "id": "".join(digest[0] for digest in prefix) + worker,
        "prefix": prefix,
        "prefix_blocks": len(prefix),
        "prompt_tokens": tokens,
        "cached_tokens": cached,
        "chosen": worker,
        "reason": "prefix_hit",
        "candidates": [],
        "time": 1_795_000_000.0,
    }


def test_shared_prefixes_are_reported_up_to_their_common_length() -> None:
    records = [record([A, B, C]), record([A, B, D], "w1"), record([A, B]), record(["e" * 16])]
    (group,) = group_prefixes(records, {})
    assert (group.digest, group.requests, group.share) == (B, 3, 0.75)
    assert group.workers == (("w0", 2), ("w1", 1))
    assert 128 <= group.tokens <= 160
    assert group.cached_share is None


def test_preview_of_a_prefix_is_what_its_prompts_share() -> None:
    records = [
        record([A, B]) | {"preview": "You are a bot. Dear Ada"},
        record([A, B]) | {"preview": "You are a bot. Dear Bob"},
        record([A, B]),
    ]
    (group,) = group_prefixes(records, {})
    assert group.preview == "You are a bot. Dear "


def test_frequent_prefixes_and_rarer_extensions_are_both_listed() -> None:
    records = [record([A, letter * 16]) for letter in "123456"] + [record([A, B, C])] * 3
    assert {(one.digest, one.requests) for one in group_prefixes(records, {})} == {(A, 9), (C, 3)}


def test_named_prefixes_are_listed_however_rare() -> None:
    records = [record([A, B, C])] * 3 + [record([A, B, D], cached=128)]
    assert [one.digest for one in group_prefixes(records, {})] == [C]
    found = {one.digest: one for one in group_prefixes(records, {D: "once"})}
    assert (found[D].name, found[D].requests) == ("once", 1)
    assert found[D].cached_share == pytest.approx(128 / 224)
    assert find_name([A, B, D], {A: "short", D: "long"}) == "long"
    assert find_name([A, B, C], {A: "short", D: "long"}) == "short"


def test_decisions_without_a_prefix_form_no_group() -> None:
    assert group_prefixes([record([]), {}, record([A])], {}) == []


def test_routers_of_one_endpoint_hash_alike_and_those_of_others_do_not(tmp_path: Any) -> None:
    keys = compile_keys(ENDPOINT)
    spec = router_spec("demo", compile_config(ENDPOINT, ()), keys)
    config_file = spec.live_files[-1]
    assert config_file.path == "router.json", "what it names is there when it is read"
    for file in spec.live_files:
        text = file.content.replace("{host}", "h").replace("{port:http}", "1")
        (tmp_path / file.path).write_text(text.replace("{port:admin}", "2"))
    config = parse(json.loads((tmp_path / "router.json").read_text()), tmp_path)
    assert config.hash_key == hash_key(keys).encode()
    assert hash_key({"keys": [{"id": "console", "sha256": "b" * 64}]}) != hash_key(keys)
    more = {"keys": [*keys["keys"], {"id": "k2", "sha256": "0" * 64}]}
    assert hash_key(more) == hash_key(keys), "a caller's key comes and goes, the names stay"


@pytest.fixture
def router() -> Iterator[Stub]:
    records = [record([A, B, C]), record([A, B, D], "w1")]
    answers: dict[str, Any] = {
        "/decisions": (200, {"decisions": records}),
        "/decisions/x": (200, records[0]),
    }
    with http_stub(answers) as stub:
        yield stub


@pytest.fixture
def demo_endpoint(db: None, router: Stub) -> Endpoint:
    return pretend_ready(make_endpoint(), admin_url=router.url)


def test_prefix_named_by_an_operator_is_shown(demo_endpoint: Endpoint, router: Stub) -> None:
    client = browser("operator")
    assert f'data-prefix="{B}"' in client.get(PAGE).text
    client.post(f"{PAGE}{B}/name/", {"name": " Support bot "})
    assert "<strong>Support bot</strong>" in client.get(PAGE).text
    assert "Support bot" in client.get("/routing/endpoints/demo/decisions/x/").text
    assert audit.list_events()[0].verb == "prefix.name"
    client.post(f"{PAGE}{B}/name/", {"name": ""})
    assert not PrefixName.objects.exists()


@pytest.mark.parametrize(
    ("digest", "name", "message"),
    [
        ("nothing", "x", "Unknown prefix"),
        (B.upper(), "x", "Unknown prefix"),
        (B, "x" * 81, "Invalid name"),
        (B, "a\nb", "Invalid name"),
    ],
)
def test_invalid_prefix_names_are_rejected(
    demo_endpoint: Endpoint, digest: str, name: str, message: str
) -> None:
    answer = browser("operator").post(f"{PAGE}{digest}/name/", {"name": name}, follow=True)
    assert message in answer.text
    path = f"/api/v1/endpoints/demo/prefixes/{digest}/"
    assert program("operator").put(path, {"name": name}).status_code == 400
    assert not PrefixName.objects.exists()


def test_viewers_cannot_name_prefixes(demo_endpoint: Endpoint) -> None:
    text = browser("viewer").get(PAGE).text
    assert f'data-prefix="{B}"' in text
    assert "Name it" not in text
    assert browser("viewer").post(f"{PAGE}{B}/name/", {"name": "x"}).status_code == 403
    path = f"/api/v1/endpoints/demo/prefixes/{B}/"
    assert program("viewer").put(path, {"name": "x"}).status_code == 403


def test_naming_action_checks_the_permission(demo_endpoint: Endpoint) -> None:
    with pytest.raises(PermissionDenied):
        actions.name_prefix(person("viewer"), "demo", B, "x")


def test_rest_lists_and_names(demo_endpoint: Endpoint, router: Stub) -> None:
    client = program("operator")
    named_now = client.put(f"/api/v1/endpoints/demo/prefixes/{B}/", {"name": "Support bot"})
    assert named_now.json() == {"digest": B, "name": "Support bot"}
    (group,) = client.get("/api/v1/endpoints/demo/prefixes/").json()["prefixes"]
    assert (group["digest"], group["name"], group["requests"]) == (B, "Support bot", 2)
    assert group["workers"] == {"w0": 1, "w1": 1}
    router.answers["/decisions"] = (500, "boom")
    assert client.get("/api/v1/endpoints/demo/prefixes/").status_code == 503
    assert "Requests are not affected" in browser("viewer").get(PAGE).text
