"""State store of an endpoint's routers: fields, rules, precedence, warning."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from console.core.confined_files import FileRefused
from console.core.state_store import StateStore
from endpoints.manifests import exporter, importer, objects
from endpoints.spec.endpoint_spec import EndpointSpec, SpecErrors, merge, parse
from endpoints.spec.rules import Context, check, standing_errors
from endpoints.spec.state_store import StoreOrigin, choose_store, separate_routers_warning
from tests.endpoints.spec.test_cluster_rules import HF, context

INSTALLED = StateStore("redis://valkey.data:6379/1", "router", "/etc/store/password", "-----CA")
OWN = {
    "router.state_store.url": "rediss://store:6380/2",
    "router.state_store.username": "routers",
    "router.state_store.password_file": "/etc/l2/store",
    "router.state_store.ca_file": "/etc/l2/ca.pem",
}
REDIS = {
    "cache.l2.enabled": True,
    "cache.l2.backend": "redis",
    "cache.l2.url": "redis://cache:6379/2",
    "cache.l2.password_file": "/etc/l2/pass",
}
IN_CLUSTER = {"placement.cluster": "in-cluster"}


def spec_of(changes: dict[str, Any]) -> EndpointSpec:
    base = {"name": "demo", "model": "org/m", "placement": {"cluster": "prod"}}
    return parse(merge(base, changes))


@pytest.mark.parametrize(
    ("changes", "origin"),
    [
        ({**OWN, **REDIS, **IN_CLUSTER}, StoreOrigin.ENDPOINT),
        ({**REDIS, **IN_CLUSTER}, StoreOrigin.L2),
        (IN_CLUSTER, StoreOrigin.INSTALLATION),
        ({}, None),  # may not reach the installation's
        ({**OWN, "router.replicas": 1}, None),
        ({**OWN, "router.replicas": 1, "router.max_replicas": 2}, StoreOrigin.ENDPOINT),
        ({**REDIS, "cache.l2.enabled": False}, None),
        ({**REDIS, "cache.l2.backend": "tieredstorage"}, None),
        ({**REDIS, "cache.l2.url": "redis://a:1,b:1?nodes=cluster"}, None),
        ({**REDIS, "cache.l2.url": "rediss://a:1?ca_file=/in/worker/pods"}, None),
    ],
)
def test_store_is_chosen_in_order_of_precedence(
    changes: dict[str, Any], origin: StoreOrigin | None
) -> None:
    spec = spec_of(changes)
    found = choose_store(spec, INSTALLED)
    assert (found and found.origin) == origin
    alone = spec.most_routers == 1
    assert bool(separate_routers_warning(spec, INSTALLED)) == (found is None and not alone)


def test_own_store_is_used_with_its_user_and_files() -> None:
    found = choose_store(spec_of(OWN), None)
    assert found is not None
    assert (found.url, found.username) == ("rediss://store:6380/2", "routers")
    assert (found.password_file, found.ca_file) == ("/etc/l2/store", "/etc/l2/ca.pem")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"router.replicas": 3}, "3 routers without a state store"),
        ({"router.replicas": 2, "router.max_replicas": 5}, "Up to 5 routers without"),
        ({}, "costs cache hits, and limits are divided"),
        ({"routing.strategy": "roundrobin"}, "only, and limits are divided"),
        ({**REDIS, "cache.l2.url": "redis://a:1,b:1"}, "The redis L2 cache cannot serve as one"),
    ],
)
def test_warning_states_cost_and_remedy(changes: dict[str, Any], words: str) -> None:
    text = separate_routers_warning(spec_of(changes), None)
    assert words in text
    assert text.endswith("Set a state store URL, or use one router.")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"url": "http://store"}, "url", "invalid_scheme"),
    ({"url": "redis://"}, "url", "invalid_url"),
    ({"url": "redis://a b:1"}, "url", "invalid_url"),
    ({"url": "redis://store:99999"}, "url", "invalid_url"),
    ({"url": "redis://store/first"}, "url", "invalid_url"),
    ({"url": "redis://store/1024"}, "url", "invalid_url"),
    ({"url": "redis://store/0#x"}, "url", "invalid_url"),
    ({"url": "redis://store?db=1"}, "url", "invalid_url"),
    ({"url": "redis://user:open-sesame@store"}, "url", "secret_in_url"),
    ({"url": "redis://a:1,b:1"}, "url", "not_supported"),
    ({"url": "redis://a:1?nodes=cluster"}, "url", "not_supported"),
    ({"url": "", "password_file": "/etc/l2/store"}, "url", "required"),
    ({"url": "", "ca_file": "/etc/l2/ca.pem"}, "url", "required"),
    ({"url": "redis://store", "username": "routers"}, "password_file", "required"),
    ({"url": "redis://store", "username": "two words"}, "username", "invalid_user"),
    ({"url": "redis://store", "password_file": "relative"}, "password_file", "invalid_path"),
    ({"url": "redis://store", "ca_file": "/etc/l2/ca.pem"}, "ca_file", "not_used"),
]


@pytest.mark.parametrize(("fields", "name", "code"), REFUSED)
def test_invalid_store_is_rejected_by_field(
    data: dict[str, Any], fields: dict[str, Any], name: str, code: str
) -> None:
    changes = {f"router.state_store.{path}": value for path, value in fields.items()}
    sent = merge(data, {"placement.cluster": "prod", **HF, **changes})
    with pytest.raises(SpecErrors) as caught:
        check(sent, replace(context(), l2_file_refusal=lambda _path: None))
    (error,) = caught.value.errors
    assert (error.field, error.code) == (f"router.state_store.{name}", code)
    assert error.message and error.remedy
    assert "open-sesame" not in f"{error}"


def outside(_path: str) -> FileRefused:
    return FileRefused("/etc/shadow is not inside /etc/l2", outside=True)


def test_files_outside_the_folder_are_rejected_and_not_applied(data: dict[str, Any]) -> None:
    sent = merge(data, {"placement.cluster": "prod", **HF, **OWN})
    where: Context = replace(context(), l2_file_refusal=outside)
    with pytest.raises(SpecErrors) as caught:
        check(sent, where)
    found = [(one.field.rpartition(".")[2], one.code) for one in caught.value.errors]
    assert found == [("password_file", "file_not_allowed"), ("ca_file", "file_not_allowed")]
    assert [one.field for one in standing_errors(parse(sent), where)] == [
        "router.state_store.password_file",
        "router.state_store.ca_file",
    ]


def test_manifest_holds_the_store_as_annotations() -> None:
    spec = spec_of(OWN)
    whole = exporter.manifest(spec)
    given = whole["metadata"]["annotations"]
    assert {f"emberline.dev/{path}": value for path, value in OWN.items()}.items() <= given.items()
    again = parse(importer.data(objects.read(whole)))
    assert again.router == spec.router
