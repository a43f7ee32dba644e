"""Manifest schema check: messages, and verdicts equal to an independent validator."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from endpoints.manifests import schemas
from endpoints.manifests.structural_schema import check
from tests.endpoints.manifests.conftest import LEAST, SAMPLES, sample

SCHEMA = schemas.spec_schema("InferenceEndpointConfig", "v1")


def found(value: Any, schema: Any = SCHEMA) -> dict[str, str]:
    return {error.field: error.code for error in check(value, schema, "spec")}


def _closed(schema: Any) -> Any:
    """Ours in the oracle's words: unknown fields are refused, int-or-string has no type."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    out = {key: _closed(item) for key, item in schema.items() if key != "format"}
    if schema.get("type") == "object" and "properties" in schema:
        out["additionalProperties"] = False
    return out


ORACLE = jsonschema.Draft202012Validator(_closed(SCHEMA))


def _spots(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else ()
    for key, item in enumerate(value) if isinstance(value, list) else items:
        yield from _spots(item, (*path, key))


def _replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    out = copy.copy(value)
    out[path[0]] = _replaced(value[path[0]], path[1:], new)
    return out


SPECS = [LEAST["spec"], *(sample(path)["spec"] for path in SAMPLES if "llama" in path.name)]
PLACES = [(spec, path) for spec in SPECS for path in _spots(spec)]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-2, 100_000), st.text(max_size=70), st.just({}),
    st.just([]), st.just({"a": 1}), st.sampled_from(["s3", "ml.x", "/x", "http", "redis", "1Gi"]),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(range(len(PLACES))), VALUES)
def test_verdict_equals_that_of_another_validator(place: int, value: Any) -> None:
    spec, path = PLACES[place]
    changed = _replaced(spec, path, value)
    assert bool(found(changed)) is not ORACLE.is_valid(changed)


@pytest.mark.parametrize(
    ("change", "path", "code"),
    [
        ({"modelname": "x"}, "spec.modelname", "unknown_field"),
        ({"replicas": "2"}, "spec.replicas", "type"),
        ({"replicas": True}, "spec.replicas", "type"),
        ({"replicas": 2**31}, "spec.replicas", "out_of_range"),
        ({"modelName": "x" * 64}, "spec.modelName", "out_of_range"),
        ({"instanceType": "g5"}, "spec.instanceType", "pattern"),
        ({"tags": [{"name": "a"}]}, "spec.tags[0].value", "required"),
        ({"dnsConfig": {"hostedZoneId": "Z1\n"}}, "spec.dnsConfig.hostedZoneId", "pattern"),
        ({"worker": None}, "spec.worker", "type"),
    ],
)
def test_each_problem_has_its_path_and_code(change: dict[str, Any], path: str, code: str) -> None:
    assert found({**LEAST["spec"], **change}) == {path: code}


def test_all_problems_are_listed_with_similar_names() -> None:
    errors = list(check({"modelname": 1, "replicas": "x"}, SCHEMA, "spec"))
    by_field = {error.field: error for error in errors}
    assert {"spec.modelname", "spec.replicas", "spec.modelName", "spec.worker"} < set(by_field)
    assert by_field["spec.modelname"].remedy == "Did you mean modelName?"
    assert by_field["spec.replicas"].remedy == "Give an integer."


def test_duplicate_variable_is_rejected() -> None:
    worker = {**LEAST["spec"]["worker"], "environmentVariables": [{"name": "A"}, {"name": "A"}]}
    assert found({**LEAST["spec"], "worker": worker}) == {
        "spec.worker.environmentVariables[1]": "duplicate"
    }


def test_value_of_a_variable_is_never_repeated() -> None:
    worker = {**LEAST["spec"]["worker"], "environmentVariables": [{"name": "T", "value": 918273}]}
    errors = list(check({**LEAST["spec"], "worker": worker}, SCHEMA, "spec"))
    assert [error.code for error in errors] == ["type"]
    assert "918273" not in repr(errors)


def test_definition_accepts_everything_the_published_one_accepts() -> None:
    """Relaxed in one place only: the address of a Prometheus."""
    theirs, ours = schemas.spec_schema(schemas.KIND, "v1"), schemas.relaxed_spec(schemas.KIND, "v1")
    changed = [path for path in _spots(theirs) if isinstance(_at(theirs, path), str)
               and _at(theirs, path) != _at(ours, path)]  # fmt: skip
    assert {path[-2:] for path in changed} == {("serverAddress", "pattern")}
    assert list(_spots(theirs)) == list(_spots(ours))
    address = ours["properties"]["autoScalingSpec"]["properties"]["prometheusTrigger"]
    for good in ("", "http://prometheus.monitoring:9090",
                 "https://aps-workspaces.us-west-2.amazonaws.com/workspaces/ws-1"):  # fmt: skip
        assert not found({"serverAddress": good}, address)
    assert found({"serverAddress": "prometheus"}, address)


def test_definition_is_complete() -> None:
    made = schemas.definition()
    versions = {version["name"]: version for version in made["spec"]["versions"]}
    assert [versions[name]["storage"] for name in ("v1", "v1alpha1")] == [True, False]
    assert versions["v1"]["subresources"]["status"] == {}
    assert made["metadata"]["name"] == "inferenceendpointconfigs.inference.sagemaker.aws.amazon.com"
    properties = versions["v1"]["schema"]["openAPIV3Schema"]["properties"]
    assert properties["status"]["properties"]["url"] == {"type": "string"}
    assert "url" not in schemas.status_schema()["properties"], "the copy stays as published"


def _at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value
