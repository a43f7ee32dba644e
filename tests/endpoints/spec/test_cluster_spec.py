"""Spec fields for clusters: absent by default, rejected elsewhere."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.pages.editor.forms import EndpointForm
from endpoints.spec.endpoint_spec import SpecErrors, diff, merge, parse
from endpoints.spec.field import SpecField
from endpoints.spec.fields import ANYWHERE, CLUSTER_FIELDS
from tests.endpoints.spec.test_endpoint_spec import errors_of

OTHER: dict[type, Any] = {
    bool: lambda before: not before,
    tuple: lambda _before: ["other"],
    dict: lambda _before: {"OTHER": "thing"},
    list: lambda _before: [{"name": "other"}],
}
TEXTS = {
    "router.state_store.url": "redis://store:6379/0",
    "router.state_store.password_file": "/etc/l2/store",
    "router.state_store.ca_file": "/etc/l2/ca.pem",
    "source.type": "s3",
    "exposure.kind": "ingress",
    "exposure.tls": "secret",
    "source.mount_path": "/other",
    "pod.working_dir": "/other",
    "monitoring.path": "/other",
}


def another(field: SpecField) -> Any:
    """A value the field takes and which is not its default."""
    if field.kind is str:
        return TEXTS.get(field.path, "other")
    if field.kind in (int, float):
        return field.default - 1 if field.default == field.maximum else field.default + 1
    return OTHER[field.kind](field.default)


@pytest.mark.parametrize("field", CLUSTER_FIELDS, ids=lambda field: field.path)
def test_field_round_trips_and_is_rejected_without_a_cluster(
    data: dict[str, Any], field: SpecField
) -> None:
    sent = merge(data, {field.path: another(field)})
    spec = parse(sent)
    assert parse(spec.to_dict()) == spec
    assert [change.path for change in diff(parse(data), spec)] == [field.path]
    if field.path in ANYWHERE or field.path == "placement.cluster":
        return
    (error,) = errors_of(sent)
    assert (error.field, error.code) == (field.path, "cluster_only")
    assert "placement.cluster" in error.remedy


def test_local_spec_is_stored_unchanged(data: dict[str, Any]) -> None:
    assert parse(data).to_dict() == data
    whole = parse(merge(data, {"placement.cluster": "prod"})).to_dict()
    assert set(whole) - set(data) == {"placement"}


def test_source_of_a_spec_does_not_change_it(data: dict[str, Any]) -> None:
    wanted = {"pod.env": {"A": "1"}, "tags": {"team": "x"}}
    sent = merge(data, wanted)
    spec = parse(sent)
    sent["tags"]["team"] = "y"
    parse(data).tags["leak"] = "z"
    assert spec.tags == {"team": "x"}
    assert parse(data).tags == {}


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("placement.cluster", "Prod_1", "invalid_name"),
        ("placement.namespace", "a.b", "invalid_name"),
        ("placement.node_selector", {"a b": "c"}, "invalid_key"),
        ("placement.node_selector", {"a": 1}, "invalid_value"),
        ("placement.tolerations", ["x"], "invalid_item"),
        ("placement.node_affinity", ["x"], "type"),
        ("source.type", "gcs", "invalid_choice"),
        ("source.mount_path", "model", "invalid_path"),
        ("source.mount_path", "/a/../b", "invalid_path"),
        ("pod.env", {"a-b c": "x"}, "invalid_key"),
        ("pod.port", 70000, "out_of_range"),
        ("scaling.triggers", {"type": "cpu"}, "type"),
        ("exposure.kind", "nodeport", "invalid_choice"),
        ("limits.overflow_status", 200, "out_of_range"),
        ("manifest", {"a": float("nan")}, "type"),
        ("manifest", {"a": "x" * 300_000}, "type"),
    ],
)
def test_invalid_values_are_rejected_with_a_message(
    data: dict[str, Any], path: str, value: Any, code: str
) -> None:
    found = {e.field: e for e in errors_of(merge(data, {path: value}))}
    assert found[path].code == code
    assert found[path].remedy


def test_possible_secrets_are_not_repeated(data: dict[str, Any]) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse(merge(data, {"pod.env": {"TOKEN": ["hunter2"]}, "manifest": ["hunter2"]}))
    assert "hunter2" not in f"{caught.value} {[e.value for e in caught.value.errors]}"


def test_form_keeps_hidden_fields(data: dict[str, Any]) -> None:
    present = parse(merge(data, {"tags": {"team": "x"}, "manifest": {"kind": "K"}})).to_dict()
    typed = {"name": "demo", "model": "m", "replicas": "1"}
    kept = EndpointForm(typed, spec=present).spec_data()
    assert (kept["tags"], kept["manifest"]) == ({"team": "x"}, {"kind": "K"})
