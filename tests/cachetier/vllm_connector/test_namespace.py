"""Everything that changes the bytes of a block changes the namespace."""

from __future__ import annotations

import copy
from types import SimpleNamespace as Facts
from typing import Any

import pytest

from cachetier.vllm_connector import namespace


def config() -> Any:
    return Facts(
        model=Facts(name="/model", dtype="float32"),
        cache=Facts(tokens_per_hash=32, blocks_per_chunk=1),
        groups=(Facts(group_id=0, tokens_per_block=32, layer_names=("l.0", "l.1")),),
        parallel=Facts(world_size=1, tp_size=1, pp_size=1, pcp_size=1, dcp_size=1, rank=0),
        kv_cache_layout="LBHNC",
        canonical_layout=False,
        engine_id="a",
    )


BASE: dict[str, Any] = {"row_bytes": 4096, "replicated": False, "model_id": "m", "vllm": "0.32"}


def made(the_config: Any = None, **changed: object) -> str:
    return namespace.digest_facts(namespace.facts(the_config or config(), **(BASE | changed)))


def test_namespace_is_stable() -> None:
    assert made() == made()
    assert len(made()) == 32
    assert made().isalnum()


@pytest.mark.parametrize(
    ("name", "value"),
    [("row_bytes", 8192), ("replicated", True), ("model_id", "n"), ("vllm", "0.33")],
)
def test_each_given_fact_changes_the_namespace(name: str, value: object) -> None:
    assert made(**{name: value}) != made()


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("model.dtype", "bfloat16"),
        ("cache.tokens_per_hash", 16),
        ("cache.blocks_per_chunk", 2),
        ("parallel.world_size", 2),
        ("parallel.tp_size", 2),
        ("parallel.pp_size", 2),
        ("parallel.pcp_size", 2),
        ("parallel.dcp_size", 2),
        ("kv_cache_layout", "BLHNC"),
        ("canonical_layout", True),
        ("groups", (Facts(group_id=0, tokens_per_block=32, layer_names=("l.0",)),)),
        ("groups", (Facts(group_id=1, tokens_per_block=32, layer_names=("l.0", "l.1")),)),
    ],
)
def test_each_layout_fact_changes_the_namespace(path: str, value: object) -> None:
    other = copy.deepcopy(config())
    place = other
    *parents, last = path.split(".")
    for parent in parents:
        place = getattr(place, parent)
    setattr(place, last, value)
    assert made(other) != made()


def test_model_path_engine_and_rank_do_not_change_the_namespace() -> None:
    other = config()
    other.model.name, other.engine_id, other.parallel.rank = "/elsewhere", "b", 3
    assert made(other) == made()


def test_order_does_not_change_the_namespace() -> None:
    facts = namespace.facts(config(), **BASE)
    assert namespace.digest_facts(dict(reversed(facts.items()))) == namespace.digest_facts(facts)
