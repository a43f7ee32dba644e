"""Accepted and rejected specs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from console.core.confined_files import FileRefused
from console.core.errors import Problem
from console.core.grants import ALL_GRANTS
from endpoints.spec.endpoint_spec import GIB, EndpointSpec, SpecErrors, diff, merge, parse, read
from endpoints.spec.field import Effect
from endpoints.spec.fields import FIELDS
from endpoints.spec.rules import Context, check

MACHINE = Context(
    memory_bytes=16 * GIB,
    shared_memory_bytes=8 * GIB,
    cpus=4,
    gpus=0,
    models={"smollm2-135m-instruct": "/models/smollm2", "absent": ""},
    other_names=frozenset({"taken"}),
    folder_exists=lambda path: path == "/models/mine",
    l2_file_refusal=lambda path: (
        None if path in ("/secrets/good", "/ca.pem") else FileRefused(f"{path} is bad")
    ),
    grants=ALL_GRANTS,
)


def errors_of(data: Any, context: Context = MACHINE) -> list[Problem]:
    with pytest.raises(SpecErrors) as caught:
        check(data, context)
    return list(caught.value.errors)


def test_complete_spec_round_trips(data: dict[str, Any]) -> None:
    assert parse(data).to_dict() == data


def test_only_name_and_model_are_required() -> None:
    spec = parse({"name": "demo", "model": "m"})
    assert spec.replicas == 1
    assert spec.cache.l1.enabled
    assert not spec.cache.l2.enabled
    assert [e.field for e in read({})[1]] == ["name", "model"]


def test_table_has_each_field_of_the_spec_once(data: dict[str, Any]) -> None:
    paths = [spec_field.path for spec_field in FIELDS]
    assert sorted(paths) == sorted(EndpointSpec("a", "b").flat())
    assert len(paths) == len(set(paths))


# (path, value, code, words of the message, words of the remedy)
REFUSED = [
    (
        "routing.strategy",
        "fastest",
        "invalid_choice",
        "fastest",
        "prefixaware, kvaware, session, roundrobin",
    ),
    (
        "routing.session_key",
        "x-session-id",
        "invalid_session_key",
        "not a session key",
        "header:NAME",
    ),
    ("routing.session_key", "header:", "invalid_session_key", "not a session key", "header:NAME"),
    ("cache.l2.backend", "memcached", "invalid_choice", "memcached", "tieredstorage, redis"),
    ("cache.l2.ttl_s", 0, "out_of_range", "less than 1", "30 days"),
    ("cache.l1.size_gib", 0, "out_of_range", "more than 0", "above 0"),
    ("cache.l1.size_gib", -1, "out_of_range", "more than 0", "above 0"),
    ("cache.l1.size_gib", float("inf"), "type", "a number", "GiB"),
    ("cache.l1.size_gib", float("nan"), "type", "a number", "GiB"),
    ("cache.l1.policy", "fifo", "invalid_choice", "fifo", "lru, arc"),
    ("cache.l1.chunk_tokens", 40, "not_a_multiple", "40 is not a multiple", "32 or 48"),
    ("cache.l1.chunk_tokens", 8, "out_of_range", "less than 16", "multiple of 16"),
    ("cache.l1.enabled", "yes", "type", "true or false", "true or false"),
    ("replicas", -1, "out_of_range", "less than 0", "from 0 to 64"),
    ("replicas", 65, "out_of_range", "more than 64", "from 0 to 64"),
    ("replicas", 10**30, "out_of_range", "more than 64", "from 0 to 64"),
    ("replicas", 1.5, "type", "whole number", "from 0 to 64"),
    ("replicas", True, "type", "whole number", "from 0 to 64"),
    ("replicas", "2", "type", "whole number", "from 0 to 64"),
    ("replicas", None, "type", "whole number", "from 0 to 64"),
    ("resources.memory_gib", 9, "over_capacity", "need 19 GiB", "at most 1 replica"),
    ("resources.memory_gib", 400, "over_capacity", "machine has 16.0", "less than 16.0 GiB"),
    ("resources.cpus", 5, "over_capacity", "has 4", "at most 4"),
    ("resources.cpus", 0, "out_of_range", "more than 0", "above 0"),
    ("resources.gpus", 1, "over_capacity", "can assign 0", "Use 0"),
    ("name", "taken", "name_taken", "exists", "another name"),
    ("name", "Demo", "invalid_name", "'Demo'", "lower-case"),
    ("name", "1demo", "invalid_name", "'1demo'", "lower-case"),
    ("name", "demo-", "invalid_name", "'demo-'", "lower-case"),
    ("name", "a" * 41, "invalid_name", "is not a valid name", "40"),
    ("name", "demo\n", "type", "text", "lower-case"),
    ("name", "", "invalid_name", "is not a valid name", "lower-case"),
    ("name", "new", "reserved_name", "reserved", "another name"),
    ("model", "gpt-x", "unknown_model", "Unknown model gpt-x", "smollm2-135m-instruct"),
    ("model", "../secret", "invalid_model", "is not a known model", "absolute path"),
    ("engine", "sglang", "invalid_choice", "sglang", "vllm, simulated"),
    ("worker_args", "--max-model-len=1", "type", "list of texts", "--max-model-len"),
    ("worker_args", ["--port=1"], "collision", "--port is set", "Remove --port"),
    ("worker_args", ["--served_model_name=x"], "collision", "model and aliases", "Remove"),
    ("worker_args", ["--served-model=x"], "collision", "read as --served-model-name", "Remove"),
    ("worker_args", ["--config", "x.yml"], "collision", "a file could", "Remove --config"),
    ("worker_args", ["2048"], "invalid_argument", "not a flag", "Start with a flag"),
    ("worker_args", ["--a", "b\nc"], "invalid_argument", "control", "one argument"),
]


@pytest.mark.parametrize(("path", "value", "code", "message", "remedy"), REFUSED)
def test_invalid_value_is_rejected_with_field_value_and_remedy(
    data: dict[str, Any], path: str, value: Any, code: str, message: str, remedy: str
) -> None:
    (error,) = errors_of(merge(data, {path: value}))
    assert (error.field, error.code) == (path, code)
    assert message in error.message
    assert remedy in error.remedy


@pytest.mark.parametrize(
    "argument",
    [
        "--kv-transfer-config={}",
        "--kv-transfer-config.kv_role=x",
        "--kv_offloading_backend=lmcache",
    ],
)
def test_own_connector_needs_l1_off(data: dict[str, Any], argument: str) -> None:
    data = merge(data, {"engine": "vllm", "worker_args": ["--seed=1", argument]})
    (error,) = errors_of(data)
    assert (error.field, error.code) == ("worker_args", "collision")
    assert "turn L1 off" in error.remedy
    check(merge(data, {"cache.l1.enabled": False}), MACHINE)


def _redis(data: dict[str, Any], **l2: Any) -> dict[str, Any]:
    fields = {"enabled": True, "backend": "redis", **l2}
    return merge(data, {f"cache.l2.{key}": value for key, value in fields.items()})


@pytest.mark.parametrize(
    ("url", "code"),
    [
        ("", "required"),
        ("http://cache:6379", "invalid_scheme"),
        ("file:///etc/nodes", "invalid_scheme"),
        ("redis://a,a", "invalid_url"),
        ("redis://a?nodes=etcd", "invalid_url"),
        ("redis://a?ca_file=/ca.pem", "invalid_url"),
        ("cache:6379", "invalid_scheme"),
        ("redis://", "invalid_url"),
        ("redis://cache:99999", "invalid_url"),
        ("redis://cache:0", "invalid_url"),
        ("redis://cache:6379/x", "invalid_url"),
        ("redis://cache:6379/0?password=x", "invalid_url"),
        ("redis://[::1", "invalid_url"),
    ],
)
def test_invalid_redis_address_is_rejected(data: dict[str, Any], url: str, code: str) -> None:
    (error,) = errors_of(_redis(data, url=url))
    assert (error.field, error.code) == ("cache.l2.url", code)
    assert "redis://HOST:PORT" in error.remedy


@pytest.mark.parametrize(
    "url",
    [
        "redis://cache",
        "redis://10.0.0.1:7000",
        "redis://[::1]:1/15",
        "rediss://cache:6380?ca_file=/ca.pem",
        "redis://a:6379,b:6379?nodes=cluster",
        "redis://a,b,c?replicas=2",
    ],
)
def test_valid_redis_addresses(data: dict[str, Any], url: str) -> None:
    assert check(_redis(data, url=url), MACHINE).cache.l2.url == url


@pytest.mark.parametrize("field", ["cache.l2.url", "router.state_store.url"])
@pytest.mark.parametrize(
    "host",
    ["169.254.169.254", "[fe80::1]", "2852039166", "0xa9fea9fe", "[::ffff:169.254.1.1]", "0.0.0.0"],
)
def test_link_local_addresses_are_rejected(data: dict[str, Any], host: str, field: str) -> None:
    """However they are written: clouds serve machine credentials there."""
    url = f"redis://{host}:6379"
    changed = _redis(data, url=url) if field.startswith("cache") else merge(data, {field: url})
    assert ("forbidden_address", field) in {(e.code, e.field) for e in errors_of(changed)}


@pytest.mark.parametrize(
    "url", ["redis://:hunter2@cache:6379", "redis://bob:hunter2@cache/0", "hunter2@cache"]
)
def test_credentials_in_an_address_are_rejected_and_not_repeated(
    data: dict[str, Any], url: str
) -> None:
    with pytest.raises(SpecErrors) as caught:
        check(_redis(data, url=url), MACHINE)
    (error,) = caught.value.errors
    assert error.code == "secret_in_url"
    assert "cache.l2.password_file" in error.remedy
    assert "hunter2" not in f"{caught.value} {error}"


def test_secret_among_the_arguments_is_rejected_and_not_repeated(data: dict[str, Any]) -> None:
    for args in (["--api-key=hunter2"], ["--api_key", "hunter2"]):
        (error,) = errors_of(merge(data, {"worker_args": args}))
        assert error.code == "collision"
        assert "hunter2" not in str(error)


def test_other_arguments_pass(data: dict[str, Any]) -> None:
    args = ["--max-model-len", "2048", "-tp=1", "--trust-remote-code", "--hf-overrides.a=1"]
    assert check(merge(data, {"worker_args": args}), MACHINE).worker_args == tuple(args)


def test_fields_of_the_other_backend_are_rejected(data: dict[str, Any]) -> None:
    found = errors_of(_redis(data, backend="tieredstorage", url="redis://a", password_file="/x"))
    assert [(e.field, e.code) for e in found] == [
        ("cache.l2.url", "not_used"),
        ("cache.l2.password_file", "not_used"),
    ]


def test_unknown_tier_is_rejected_with_the_existing_ones(data: dict[str, Any]) -> None:
    offered = replace(MACHINE, tiers=frozenset({"default", "chat"}))
    wanted = merge(data, {"cache.l2.enabled": True, "cache.l2.tier": "chat"})
    assert check(wanted, offered).cache.l2.tier == "chat"
    (error,) = errors_of(wanted)
    assert (error.field, error.code) == ("cache.l2.tier", "unknown_tier")
    assert "default" in error.remedy


def test_spec_without_a_tier_name_uses_the_default_tier(data: dict[str, Any]) -> None:
    del data["cache"]["l2"]["tier"]
    assert check(data, MACHINE).cache.l2.tier == "default"


def test_password_file_must_be_readable(data: dict[str, Any]) -> None:
    check(_redis(data, url="redis://a", password_file="/secrets/good"), MACHINE)
    (error,) = errors_of(_redis(data, url="redis://a", password_file="/secrets/bad"))
    assert error.code == "file_unreadable"
    (error,) = errors_of(_redis(data, url="redis://a", password_file="good"))
    assert error.code == "invalid_path"


def test_l2_needs_l1(data: dict[str, Any]) -> None:
    (error,) = errors_of(merge(data, {"cache.l2.enabled": True, "cache.l1.enabled": False}))
    assert (error.field, error.code) == ("cache.l1.enabled", "l2_needs_l1")


def test_l1_counts_as_memory_only_when_on(data: dict[str, Any]) -> None:
    fits = merge(data, {"resources.memory_gib": 8.0})
    assert errors_of(fits)[0].code == "over_capacity"
    check(merge(fits, {"cache.l1.enabled": False}), MACHINE)


def test_real_workers_need_shared_memory_and_the_model(data: dict[str, Any]) -> None:
    big = merge(data, {"resources.memory_gib": 1.0, "cache.l1.size_gib": 5.0})
    check(big, MACHINE)
    (error,) = errors_of(merge(big, {"engine": "vllm"}))
    assert (error.field, error.code) == ("cache.l1.size_gib", "over_capacity")
    check(merge(data, {"model": "absent"}), MACHINE)
    (error,) = errors_of(merge(data, {"model": "absent", "engine": "vllm"}))
    assert error.code == "model_missing"
    check(merge(data, {"model": "/models/mine", "engine": "vllm"}), MACHINE)
    (error,) = errors_of(merge(data, {"model": "/models/other", "engine": "vllm"}))
    assert error.code == "unknown_model"
    check(merge(data, {"model": "org/name", "engine": "vllm"}), MACHINE)


def test_unknown_fields_are_rejected_by_name(data: dict[str, Any]) -> None:
    found = errors_of({**data, "replica": 2, "cache": {**data["cache"], "l3": {}}})
    assert {(e.field, e.code) for e in found} == {
        ("replica", "unknown_field"),
        ("cache.l3", "unknown_field"),
    }
    remedies = {error.field: error.remedy for error in found}
    assert "replicas" in remedies["replica"]
    assert "cache.l1, cache.l2" in remedies["cache.l3"]


def test_section_must_be_an_object(data: dict[str, Any]) -> None:
    (error,) = errors_of({**data, "cache": "on"})
    assert (error.field, error.code) == ("cache", "type")


@pytest.mark.parametrize("value", [None, [], "demo", 1, True])
def test_spec_must_be_an_object(value: Any) -> None:
    assert errors_of(value)[0].code == "type"


def test_all_errors_are_reported_at_once(data: dict[str, Any]) -> None:
    found = errors_of(
        merge(
            _redis(data),
            {"replicas": -1, "routing.strategy": "x", "resources.memory_gib": 99.0, "zzz": 1},
        )
    )
    assert [e.field for e in found] == [
        "zzz",
        "replicas",
        "routing.strategy",
        "cache.l2.url",
        "resources.memory_gib",
    ]


def test_default_engine_is_that_of_the_installation() -> None:
    assert parse({"name": "a", "model": "m"}, {"engine": "simulated"}).simulated


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.dictionaries(st.sampled_from([f.path for f in FIELDS] + ["cache", "x"]), JSON))
def test_arbitrary_input_is_accepted_or_rejected_with_a_message(patch: dict[str, Any]) -> None:
    base = EndpointSpec("demo", "smollm2-135m-instruct", engine="simulated").to_dict()
    for sent in (patch, merge(base, {k: v for k, v in patch.items() if k != "cache"})):
        try:
            spec = check(sent, MACHINE)
        except SpecErrors as error:
            assert all(e.message and e.remedy and e.code for e in error.errors)
        else:
            assert parse(spec.to_dict()) == spec


def test_diff_lists_what_restarts(data: dict[str, Any]) -> None:
    before = parse(data)
    live = parse(merge(data, {"replicas": 3, "routing.strategy": "session"}))
    changes = diff(before, live)
    assert [(c.path, c.before, c.after) for c in changes] == [
        ("replicas", 2, 3),
        ("routing.strategy", "prefixaware", "session"),
    ]
    assert {change.effect for change in changes} == {Effect.LIVE}
    (restarts,) = diff(before, parse(merge(data, {"cache.l1.size_gib": 1.0})))
    assert restarts.effect is Effect.RESTART
    assert diff(before, before) == ()


@pytest.mark.parametrize("path", [f.path for f in FIELDS if f.kind in (int, float)])
@pytest.mark.parametrize("value", [10**400, -(10**400)])
def test_huge_number_is_rejected_with_a_message(
    data: dict[str, Any], path: str, value: int
) -> None:
    [error] = [e for e in errors_of(merge(data, {path: value})) if e.field == path]
    assert error.code in ("out_of_range", "type")
    assert len(error.message) < 200


@pytest.mark.parametrize("host", ["x" * 64, "a..b", "h" * 300 + ".example"])
def test_unresolvable_host_is_rejected(data: dict[str, Any], host: str) -> None:
    changes = {"cache.l2.backend": "redis", "cache.l2.url": f"redis://{host}:6379"}
    codes = [e.code for e in errors_of(merge(data, changes)) if e.field == "cache.l2.url"]
    assert codes == ["invalid_url"]
