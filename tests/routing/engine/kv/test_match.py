"""Matched part of a prompt over devices, host memory and storage."""

from __future__ import annotations

from routing.engine.kv.match import match, usable_blocks
from tests.routing.engine.kv.builders import CLEARED, Fleet, removed, stored

P = [1, 2, 3, 4, 5, 6, 7, 8]


def test_last_token_is_always_computed() -> None:
    assert [usable_blocks(tokens, 4) for tokens in (0, 1, 4, 5, 8, 9)] == [0, 0, 0, 1, 1, 2]


def test_empty_index_and_empty_prompt() -> None:
    fleet = Fleet()
    assert fleet.ask(P).workers == {}
    fleet.report("a", stored(P))
    assert match(fleet.index, {}).workers == match(fleet.index, {2: []}).workers == {}


def test_host_memory_extends_the_device_prefix() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:4]), stored(P, 1, 2, medium="CPU"), stored(P, 3))
    # The device's last block lies behind what only the host has: the engine stops looking there.
    assert fleet.held(P) == {"a": (4, 2, 0)}
    fleet.report("a", stored(P, 3, medium="cpu"))
    assert fleet.held(P) == {"a": (4, 4, 0)}


def test_host_prefix_beats_no_device_prefix() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), stored(P[:2], medium="CPU"), removed(P[:2]))
    assert fleet.held(P) == {"a": (0, 2, 0)}


def test_block_evicted_from_the_device_stays_in_host_memory() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:4]), stored(P[:4], medium="CPU"), removed(P[:4]), removed(P[:2]))
    assert fleet.held(P) == {"a": (0, 4, 0)}
    fleet.report("a", stored(P, 2, medium="CPU"))
    assert fleet.held(P) == {"a": (0, 8, 0)}
    fleet.report("a", removed(P[:4], medium="CPU"))
    assert fleet.held(P) == {"a": (0, 2, 0)}


def test_own_storage_is_loadable_by_its_worker_only() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:2]), stored(P, 1, medium="STORAGE", locality="LOCAL"))
    fleet.report("b", stored(P[:2]))
    assert fleet.held(P) == {"a": (2, 0, 6), "b": (2, 0, 0)}
    assert fleet.ask(P).anywhere == 0


def test_shared_storage_is_loadable_by_all() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), stored(P[:6], medium="STORAGE", locality="REMOTE"))
    fleet.report("b", stored(P[:2]), stored(P, 1, 1, medium="CPU"))
    fleet.report("c", stored([9, 9]))
    found = fleet.ask(P)
    assert {worker: item[:3] for worker, item in found.workers.items()} == {
        "a": (8, 0, 0),
        "b": (2, 2, 2),
    }
    assert found.anywhere == 6
    fleet.report("a", CLEARED)
    assert fleet.ask(P).anywhere == 0
    assert fleet.held(P) == {"b": (2, 2, 0)}


def test_storage_of_unknown_scope_is_shared() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, medium="storage"))
    fleet.report("b", stored(P[:2]))
    assert fleet.held(P)["b"] == (2, 0, 6)
    fleet.report("a", removed(P[:4], medium="storage"))
    assert fleet.held(P)["b"] == (2, 0, 0)
    assert fleet.ask(P).anywhere == 2


def test_best_rank_represents_its_worker() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:4], medium="CPU"), rank=0)
    fleet.report("a", stored(P[:4]), rank=1)
    fleet.report("a", stored(P[:2]), rank=2)
    assert fleet.ask(P).workers["a"] == (4, 0, 0, 1)
    fleet.report("a", stored(P[:6], medium="CPU"), rank=3)
    assert fleet.ask(P).workers["a"] == (0, 6, 0, 3)


def test_groups_and_tiers_are_combined() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, group_idx=0), stored(P[:2], group_idx=1))
    fleet.report("a", stored(P, 1, 2, group_idx=1, medium="CPU"))
    assert fleet.held(P) == {"a": (2, 4, 0)}


def test_connector_with_larger_chunks() -> None:
    """Its blocks are named on their own; what reaches further counts."""
    fleet = Fleet()
    chunks = stored(P, block=4, medium="cpu", group_idx=None, extra_keys=None)
    chunks.block_hashes = [11, 12]
    fleet.report("a", stored(P[:6]), chunks)
    found = fleet.ask(P, 2, 4).workers["a"]
    assert (found.gpu, found.l1, found.l2) == (6, 2, 0)


def test_few_matches_among_many_workers() -> None:
    fleet = Fleet()
    for number in range(300):
        fleet.report(f"w{number}", stored(P[:2] if number % 100 == 0 else [number, 99]))
    assert set(fleet.held(P)) == {"w0", "w100", "w200"}
