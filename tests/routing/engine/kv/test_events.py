"""Index contents after events, with a test for each protocol pitfall."""

from __future__ import annotations

import pytest

from routing.engine.kv import events, holders
from routing.engine.kv.wire import Removed, Stored
from tests.routing.engine.kv.builders import CLEARED, Fleet, engine_hash, removed, stored

P = [1, 2, 3, 4, 5, 6, 7, 8]  # four blocks


def test_prefill_is_indexed_and_its_prefix_shared() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P))
    assert fleet.held(P) == {"a": (8, 0, 0)}
    assert fleet.held([1, 2, 3, 4, 9, 9]) == {"a": (4, 0, 0)}
    assert fleet.held([9, 9, 3, 4]) == {}
    assert fleet.held([]) == {}


def test_later_step_is_chained_to_its_parent() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, 0, 1), stored(P, 1, 2), stored(P, 3))
    assert fleet.held(P) == {"a": (8, 0, 0)}


def test_deepest_block_is_evicted_first() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), removed(P), removed(P[:6]))
    assert fleet.held(P) == {"a": (4, 0, 0)}


def test_gap_ends_the_prefix() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), removed(P[:4]))
    assert fleet.held(P) == {"a": (2, 0, 0)}


def test_cleared_rank_is_empty_and_starts_again() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), CLEARED, stored([9, 9]))
    fleet.report("b", stored(P))
    assert fleet.held(P) == {"b": (8, 0, 0)}
    assert fleet.held([9, 9]) == {"a": (2, 0, 0)}
    fleet.settle()
    assert fleet.held([9, 9]) == {"a": (2, 0, 0)}
    fleet.report("a", stored(P, 2))  # its parents went with the clearing
    assert fleet.held(P) == {"b": (8, 0, 0)}


def test_forgotten_worker_leaves_nothing() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P))
    fleet.report("b", stored(P[:4]))
    fleet.index.forget("a")
    assert fleet.held(P) == {"b": (4, 0, 0)}
    fleet.settle()
    assert len(fleet.index) == 2
    fleet.index.forget("b")
    fleet.settle()
    assert len(fleet.index) == 0
    assert fleet.index.block_sizes() == set()


def test_worker_bits_are_reused_only_after_the_sweep() -> None:
    """Else a new worker would hold what the old one left."""
    fleet = Fleet()
    fleet.report("a", stored(P))
    fleet.index.forget("a")
    fleet.report("b", stored([9, 9]))
    assert fleet.held(P) == {}
    fleet.settle()
    fleet.report("c", stored([7, 7]))
    assert fleet.held(P) == {}
    assert len(fleet.index.slots) == 2  # the freed ones serve again


def test_one_rank_is_forgotten_alone() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:4]), rank=0)
    fleet.report("a", stored(P), rank=1)
    found = fleet.ask(P).workers["a"]
    assert (found.tokens, found.rank) == (8, 1)
    fleet.index.forget("a", 1)
    found = fleet.ask(P).workers["a"]
    assert (found.tokens, found.rank) == (4, 0)


def test_event_of_a_forgotten_rank_is_dropped() -> None:
    fleet = Fleet()
    rank = fleet.index.rank("a", 0, "m")
    long = list(range(4 * events.BLOCKS_PER_STEP))
    steps = fleet.applier.apply(rank, [stored(long), stored([9, 9])])
    next(steps)
    fleet.index.forget("a")
    assert list(steps) == []
    fleet.settle()
    assert len(fleet.index) == 0


def test_consecutive_removals_end_with_their_rank() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P))
    rank = fleet.index.rank("a", 0, "m")
    many = [removed([n, n]) for n in range(2 * events.BLOCKS_PER_STEP)]
    steps = fleet.applier.apply(rank, [*many, stored([9, 9])])
    next(steps)
    rank.epoch += 1  # as `empty` does, by another command
    assert list(steps) == []
    assert fleet.held([9, 9]) == {}


# -- duplicates and sets


def test_block_stored_twice_and_removed_once_is_gone() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), stored(P, 3), removed(P))
    assert fleet.held(P) == {"a": (6, 0, 0)}
    fleet.report("a", removed(P))
    assert fleet.held(P) == {"a": (6, 0, 0)}
    fleet.counted(stored=4, duplicate=1, removed=2)


def test_stored_child_restores_the_other_copy_of_its_parent() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:6]), stored(P[:6], 2), removed(P[:6]))
    assert fleet.held(P) == {"a": (4, 0, 0)}
    fleet.report("a", stored(P, 3))
    assert fleet.held(P) == {"a": (8, 0, 0)}
    assert fleet.applier.counts["healed_parent"] == 1


def test_child_in_host_memory_does_not_restore_a_device_parent() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:6]), stored(P[:6], 2), removed(P[:6]), stored(P, 3, medium="CPU"))
    assert fleet.held(P) == {"a": (4, 0, 0)}
    fleet.report("a", stored(P[:6], 2, medium="CPU"))  # the child had its place all the same
    assert fleet.held(P) == {"a": (4, 4, 0)}


def test_child_restores_nothing_without_another_copy() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:6]), stored(P[:6], 2), removed(P[:6]), removed(P[:6]))
    fleet.report("a", stored(P, 3))
    assert fleet.held(P) == {"a": (4, 0, 0)}
    assert fleet.applier.counts["parked"] == 1


def test_removals_of_unknown_blocks_are_counted() -> None:
    fleet = Fleet()
    fleet.report("a", removed(P))
    fleet.report("a", stored([9, 9]), removed(P))
    fleet.counted(stored=1, removed_unknown=2)


# -- unknown parents


def test_orphan_does_not_match_until_its_parent_is_known() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, 1))
    # Not at the root either: neither as its own prompt nor in its place.
    assert fleet.held(P) == fleet.held(P[2:]) == {}
    assert fleet.index.ranks["a", 0].parked == 3
    fleet.report("a", stored(P, 0, 1))
    assert fleet.held(P) == {"a": (8, 0, 0)}
    fleet.counted(stored=4, parked=3, unparked=3)
    assert fleet.index.ranks["a", 0].parked == 0


def test_orphans_of_orphans_are_resolved() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, 3), stored(P, 2, 1), stored(P, 1, 1))
    assert fleet.held(P) == {}
    fleet.report("a", stored(P, 0, 1))
    assert fleet.held(P) == {"a": (8, 0, 0)}


def test_pending_block_that_is_removed_stays_removed() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, 1), removed(P), stored(P, 0, 1))
    assert fleet.held(P) == {"a": (6, 0, 0)}
    fleet = Fleet()
    fleet.report("a", stored(P, 3), removed(P), stored(P, 0, 3))
    assert fleet.held(P) == {"a": (6, 0, 0)}
    fleet = Fleet()  # removed and stored again
    fleet.report("a", stored(P, 3), removed(P), stored(P, 3), stored(P, 0, 3))
    assert fleet.held(P) == {"a": (8, 0, 0)}


def test_pending_block_that_was_removed_can_be_stored_again() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, 2), removed(P), stored(P, 2), stored(P, 0, 2))
    assert fleet.held(P) == {"a": (8, 0, 0)}


def test_block_pending_in_two_tiers_is_removed_from_one() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:4], 1), stored(P[:4], 1, medium="CPU"), removed(P[:4]))
    fleet.report("a", stored(P, 0, 1))
    assert fleet.held(P) == {"a": (2, 2, 0)}


def test_held_and_pending_copies_are_both_removed() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P[:4]), removed(P[:2]), stored(P[:4], 1), removed(P[:4]))
    fleet.report("a", stored(P, 0, 1))
    assert fleet.held(P) == {"a": (2, 0, 0)}


def test_pending_blocks_are_bounded_and_the_oldest_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(holders, "LIMIT_BLOCKS", 4)
    fleet = Fleet()
    others = [[n, n, n, n] for n in range(20, 26)]
    for other in others:
        fleet.report("a", stored(other, 1))
    assert fleet.index.ranks["a", 0].parked == 4
    assert fleet.applier.counts["dropped_parked"] == 2
    for other in others:
        fleet.report("a", stored(other, 0, 1))
    assert [fleet.held(other)["a"][0] for other in others] == [2, 2, 4, 4, 4, 4]


def test_repeated_pending_event_is_kept_once() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, 1), stored(P, 1))
    assert fleet.index.ranks["a", 0].parked == 3


# -- what else is in a block's name


def test_salts_and_adapters_are_separate() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, salt="tenant1"))
    fleet.report("b", stored(P, lora="tenant1"))
    fleet.report("c", stored(P))
    fleet.report("d", stored(P, lora="x", salt="y"))
    assert fleet.held(P, salt="tenant1") == {"a": (8, 0, 0)}
    assert fleet.held(P, lora="tenant1") == {"b": (8, 0, 0)}
    assert fleet.held(P) == {"c": (8, 0, 0)}
    assert fleet.held(P, lora="x", salt="y") == {"d": (8, 0, 0)}
    assert fleet.held(P, lora="y", salt="x") == {}


def test_image_changes_the_block_hash() -> None:
    fleet = Fleet()
    plain = stored(P)
    keys = [None, [["image1", 0]], [["image1", -2]], None]
    fleet.report("a", stored(P, extra_keys=keys))
    assert fleet.held(P) == {"a": (2, 0, 0)}
    assert plain.block_hashes  # the tokens were the same


def test_models_are_separate() -> None:
    fleet = Fleet()
    for _ in fleet.applier.apply(fleet.index.rank("a", 0, "other"), [stored(P)]):
        pass
    assert fleet.held(P) == {}


def test_two_block_sizes_side_by_side() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P))
    fleet.report("b", stored(P, block=4))
    assert fleet.index.block_sizes() == {2, 4}
    found = fleet.ask([*P[:6], 9, 9], 2, 4).workers
    assert {worker: item.tokens for worker, item in found.items()} == {"a": 6, "b": 4}


def test_byte_and_integer_hashes_identify_the_same_block() -> None:
    fleet = Fleet()
    event = stored(P[:2])
    fleet.report("a", event)
    digest = b"x" * 24 + engine_hash(P[:2]).to_bytes(8, "big")
    fleet.report("a", Removed([digest], "GPU", 0))
    assert fleet.held(P) == {}
    signed = engine_hash(P[:2]) - 2**64  # as older versions wrote it
    fleet.report("b", stored(P[:2]), Removed([signed], "GPU", 0))
    assert fleet.held(P) == {}


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": [1, 2, 3]},
        {"token_ids": [-1, 2]},
        {"token_ids": [2**32, 2]},
        {"block_size": 0},
        {"block_size": -2},
        {"block_hashes": []},
    ],
)
def test_malformed_events_are_counted(change: dict) -> None:
    fleet = Fleet()
    good = stored(P[:2])
    fields = {name: getattr(good, name) for name in good.__struct_fields__}
    fleet.report("a", Stored(**{**fields, **change}))
    fleet.counted(malformed_event=1)
    assert fleet.held(P) == {}


def test_unknown_media_are_counted() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, medium="TAPE"), stored(P), removed(P, medium="TAPE"))
    fleet.counted(unknown_medium=2, stored=4)


# -- groups


def test_all_full_attention_groups_must_hold_the_prefix() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, group_idx=0), stored(P[:4], group_idx=1))
    fleet.report("b", stored(P, group_idx=0))
    assert fleet.held(P) == {"a": (4, 0, 0), "b": (8, 0, 0)}
    fleet.report("a", removed(P[:4], group=0))
    assert fleet.held(P)["a"] == (2, 0, 0)
    fleet.report("a", removed(P[:2], group=1))
    assert "a" not in fleet.held(P)


@pytest.mark.parametrize("kind", ["sliding_window", "mamba", "chunked_local_attention"])
def test_sliding_window_groups_report_no_prefix(kind: str) -> None:
    fleet = Fleet()
    window = {"group_idx": 1, "kv_cache_spec_kind": kind}
    # Masked: fewer hashes than tokens, as such groups have it.
    masked = stored(P, **window)
    masked.block_hashes = masked.block_hashes[-1:]
    fleet.report("a", stored(P), masked, removed(P[:2], group=1))
    assert fleet.held(P) == {"a": (8, 0, 0)}
    fleet.counted(stored=4, window_group=2)


@pytest.mark.parametrize("kind", [None, "mla_attention", "sink_full_attention", "new_kind"])
def test_other_group_kinds_are_counted(kind: str | None) -> None:
    fleet = Fleet()
    fleet.report("a", stored(P, group_idx=None, kv_cache_spec_kind=kind))
    assert fleet.held(P) == {"a": (8, 0, 0)}


# -- tiers reported without tokens, or without salt


def test_placeholder_matches_once_its_id_is_known() -> None:
    fleet = Fleet()
    bare = Stored(block_hashes=[engine_hash(P[:2])], medium="CPU", group_idx=0)
    fleet.report("a", bare, stored(P[:2]), removed(P[:2]))
    assert fleet.held(P) == {"a": (0, 2, 0)}
    fleet.report("b", stored(P[:2]), bare, removed(P[:2]))
    assert fleet.held(P)["b"] == (0, 2, 0)
    fleet.report("c", bare, removed(P[:2], medium="CPU"), stored(P[:2]), removed(P[:2]))
    assert "c" not in fleet.held(P)


def test_device_event_overrides_the_salt_of_a_connector() -> None:
    fleet = Fleet()
    blind = stored(P, salt="t", medium="CPU", extra_keys=None)
    fleet.report("a", stored(P, salt="t"), blind)
    assert fleet.held(P, salt="t") == {"a": (8, 0, 0)}
    assert fleet.held(P) == {}
    fleet.report("a", *(removed(P[:end], salt="t") for end in (8, 6, 4, 2)))
    assert fleet.held(P, salt="t") == {"a": (0, 8, 0)}
    # The connector first (promoted from storage): wrong until the device reports.
    fleet.report("b", blind)
    assert fleet.held(P)["b"] == (0, 8, 0)
    fleet.report("b", stored(P, salt="t"))
    assert "b" not in fleet.held(P)
    assert fleet.held(P, salt="t")["b"] == (8, 0, 0)
    assert fleet.applier.counts["rebound"] == 4


# -- fields and kinds of later engines


def test_block_with_remaining_copies_is_not_gone() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), stored(P))
    last = removed(P)
    last.remaining_copy_counts = [1]
    fleet.report("a", last)
    assert fleet.held(P) == {"a": (8, 0, 0)}
    assert fleet.applier.counts["copy_left"] == 1
    last.remaining_copy_counts = [0]
    fleet.report("a", last)
    assert fleet.held(P) == {"a": (6, 0, 0)}


def test_blocks_of_a_draft_model_are_not_the_models() -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), stored(P[:4], group_idx=1, is_draft=True))
    assert fleet.held(P) == {"a": (8, 0, 0)}
    assert fleet.applier.counts["draft_group"] == 1
    fleet.report("a", removed(P[:4], group=1))
    assert fleet.held(P) == {"a": (8, 0, 0)}


@pytest.mark.parametrize("kind", ["sparse", "of_tomorrow"])
def test_group_of_an_unknown_kind_counts_only_alone(kind: str) -> None:
    fleet = Fleet()
    fleet.report("a", stored(P), stored(P[:4], group_idx=1, kv_cache_spec_kind=kind))
    assert fleet.held(P) == {"a": (8, 0, 0)}, "the known group decides"
    assert fleet.applier.counts["unknown_kind"] == 1
    fleet.report("b", stored(P, kv_cache_spec_kind=kind))
    assert fleet.held(P)["b"] == (8, 0, 0)


def test_large_removal_is_split() -> None:
    fleet = Fleet()
    tokens = list(range(2, 2 + 2 * 1000))
    fleet.report("a", stored(tokens))
    ends = [tokens[: 2 * (number + 1)] for number in range(1000)]
    everything = Removed([engine_hash(end) for end in ends], "GPU", 0)
    pieces = 0
    for _ in fleet.applier.apply(fleet.index.rank("a", 0, "m"), [everything]):
        pieces += 1
    assert pieces >= 1000 // events.BLOCKS_PER_STEP
    assert fleet.held(tokens) == {}
    assert len(fleet.index) == 0
