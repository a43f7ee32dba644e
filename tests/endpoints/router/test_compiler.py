"""From facts to the router's files and workload, which the router's parser accepts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from console.provisioners.base import PermanentError
from console.provisioners.specs import ReplicaFacts, check_spec
from endpoints.keys.terms import KeyFacts
from endpoints.lifecycle.components import EndpointFacts, WorkerFacts
from endpoints.router import compiler
from endpoints.router.compiler import as_text, compile_config, compile_keys
from endpoints.router.workload import router_spec
from endpoints.spec.endpoint_spec import EndpointSpec
from endpoints.spec.fields import RoutingSpec
from routing.engine.config import parse

KEY = KeyFacts("console", "a" * 64, pin=True)
ENDPOINT = EndpointFacts(
    id="1",
    name="demo",
    namespace="default",
    spec=EndpointSpec(name="demo", model="m", replicas=2),
    generation=1,
    keys=(KEY,),
)


def worker(index: int, *, ready: bool = True, draining: bool = False, url: str | None = None):
    address = f"http://127.0.0.1:{20000 + index}" if url is None else url
    return WorkerFacts(f"demo-worker-{index}", address, ready, draining, simulated=True)


def with_routing(**fields: object) -> EndpointFacts:
    return replace(ENDPOINT, spec=replace(ENDPOINT.spec, routing=RoutingSpec(**fields)))


def test_router_parses_the_compiled_files(tmp_path: Path) -> None:
    spec = router_spec(
        "demo",
        compile_config(ENDPOINT, (worker(1, draining=True), worker(0))),
        compile_keys(ENDPOINT),
    )
    check_spec(spec)
    replica = ReplicaFacts("127.0.0.1", str(tmp_path), 0, {"http": 9000, "admin": 9090})
    for file in spec.live_files:
        (tmp_path / file.path).write_text(replica.fill(file.content))
    config = parse(json.loads((tmp_path / "router.json").read_text()), tmp_path)
    assert str(config.listen) == "127.0.0.1:9000"
    assert str(config.admin) == "127.0.0.1:9090"
    assert [w.id for w in config.workers] == ["demo-worker-0", "demo-worker-1"]
    assert [w.draining for w in config.workers] == [False, True]
    assert config.keys is not None
    assert [(k.id, k.sha256, k.pin) for k in config.keys] == [("console", "a" * 64, True)]
    assert (config.endpoint, config.namespace, config.model) == ("demo", "default", "demo")


@pytest.mark.parametrize("replicas", [0, 2])
def test_a_router_knows_that_its_endpoint_is_paused(replicas: int) -> None:
    endpoint = replace(ENDPOINT, spec=replace(ENDPOINT.spec, replicas=replicas))
    assert compile_config(endpoint, ()).get("paused", False) is (replicas == 0)


def test_workers_without_an_address_are_omitted_and_unready_ones_are_not() -> None:
    config = compile_config(ENDPOINT, (worker(0, ready=False), worker(1, url="")))
    assert [w["id"] for w in config["workers"]] == ["demo-worker-0"]


def test_kv_event_addresses_are_published_for_every_strategy() -> None:
    telling = replace(worker(0), channels={"kv-events": "ipc:///a/e", "kv-replay": "ipc:///a/r"})
    config = compile_config(replace(ENDPOINT, model_folder="/"), (telling, worker(1)))
    found = parse({**config, "listen": "127.0.0.1:1", "admin": "", "api_keys_file": ""}, Path("/"))
    assert [(w.kv_events, w.kv_replay) for w in found.workers] == [
        ("ipc:///a/e", "ipc:///a/r"),
        ("", ""),
    ]
    assert found.kv.tokenizer == Path("/")
    assert compile_config(ENDPOINT, ()).get("kv") is None


def test_ttl_of_l2_is_published_for_kvaware() -> None:
    assert "kv" not in compile_config(with_routing(strategy="kvaware"), ())
    spec = with_routing(strategy="kvaware").spec
    l2 = replace(spec.cache.l2, enabled=True, ttl_s=900)
    endpoint = replace(ENDPOINT, spec=replace(spec, cache=replace(spec.cache, l2=l2)))
    assert compile_config(endpoint, ())["kv"] == {"l2_ttl_s": 900}
    routing = replace(endpoint.spec.routing, strategy="prefixaware")
    assert "kv" not in compile_config(
        replace(endpoint, spec=replace(endpoint.spec, routing=routing)), ()
    )


def test_routers_record_if_the_endpoint_enables_it() -> None:
    assert "recording" not in compile_config(ENDPOINT, ())
    routing = replace(ENDPOINT.spec.routing, record_traffic=True, record_mib=8)
    config = compile_config(replace(ENDPOINT, spec=replace(ENDPOINT.spec, routing=routing)), ())
    assert config["recording"] == {"enabled": True, "hour_bytes": 2 * 2**20}


def test_routers_keep_prompt_text_only_if_the_endpoint_allows_it() -> None:
    assert "decisions" not in compile_config(ENDPOINT, ())
    routing = replace(ENDPOINT.spec.routing, prompt_preview=True)
    config = compile_config(replace(ENDPOINT, spec=replace(ENDPOINT.spec, routing=routing)), ())
    assert config["decisions"] == {"preview_chars": 120}


@pytest.mark.parametrize(
    ("fields", "strategy"),
    [
        ({"strategy": "session"}, "session"),
        ({"strategy": "kvaware"}, "kvaware"),
        ({"strategy": "session", "enabled": False}, "roundrobin"),
        ({}, "prefixaware"),
    ],
)
def test_disabled_routing_compiles_to_round_robin(fields: dict[str, object], strategy: str) -> None:
    assert compile_config(with_routing(**fields), ())["strategy"] == strategy


def test_configurations_that_the_router_would_reject_are_not_published() -> None:
    with pytest.raises(PermanentError, match="session_key") as caught:
        compile_config(with_routing(session_key="nonsense"), ())
    assert caught.value.reason == "RouterConfigRefused"
    with pytest.raises(PermanentError, match=r"workers\[0\]"):
        compile_config(ENDPOINT, (worker(0, url="ftp://x"),))
    with pytest.raises(PermanentError, match="sha256"):
        compile_keys(replace(ENDPOINT, keys=(KeyFacts("k", "short"),)))


def test_without_keys_every_request_is_rejected() -> None:
    assert compile_keys(replace(ENDPOINT, keys=())) == {"keys": []}


def test_changed_strategies_workers_and_keys_need_no_restart() -> None:
    first = router_spec("demo", compile_config(ENDPOINT, (worker(0),)), compile_keys(ENDPOINT))
    second = router_spec(
        "demo",
        compile_config(with_routing(strategy="roundrobin"), (worker(1),)),
        compile_keys(replace(ENDPOINT, keys=())),
    )
    assert first.live_files != second.live_files
    assert first.spec_hash == second.spec_hash


def test_equal_inputs_compile_to_equal_bytes() -> None:
    one = compile_config(ENDPOINT, (worker(0), worker(1)))
    other = compile_config(ENDPOINT, (worker(1), worker(0)))
    assert as_text(one) == as_text(other)


def test_workload_contains_no_plain_secret() -> None:
    spec = router_spec("demo", compile_config(ENDPOINT, ()), compile_keys(ENDPOINT))
    assert spec.probe.path == "/healthz"
    assert spec.ports == (compiler.HTTP_PORT, compiler.ADMIN_PORT)
    assert spec.argv[1:] == ("-m", "routing.engine", "--config", "{dir}/router.json")


@pytest.mark.parametrize(
    ("strategy", "canary", "published"),
    [
        ("prefixaware", None, 5000),
        ("kvaware", None, None),
        ("kvaware", {"id": "c", "strategy": "prefixaware", "share": 0.1}, 5000),
        ("session", {"id": "c", "strategy": "kvaware", "share": 0.1}, None),
    ],
)
def test_size_of_l1_is_published_for_prefixaware(
    strategy: str, canary: dict[str, object] | None, published: int | None
) -> None:
    endpoint = replace(with_routing(strategy=strategy), l1_tokens=5000)
    config = compile_config(endpoint, (), canary)
    assert config.get("l1_tokens") == published
    files = {"listen": "127.0.0.1:1", "admin": "", "api_keys_file": ""}
    assert parse({**config, **files}, Path("/")).l1_tokens == (published or 0)
