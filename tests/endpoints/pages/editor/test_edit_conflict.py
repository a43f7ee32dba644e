"""Merge of two concurrent changes of an endpoint."""

from __future__ import annotations

from typing import Any

import pytest

from endpoints.pages.editor.edit_conflict import MINE, THEIRS, differences, merged
from endpoints.spec.endpoint_spec import parse

BASE = parse({"name": "demo", "model": "m"}).flat()


def with_(**changes: Any) -> dict[str, Any]:
    return {**BASE, **{path.replace("__", "."): value for path, value in changes.items()}}


def test_their_changes_stay_theirs_and_mine_stay_mine() -> None:
    mine, theirs = with_(replicas=3), with_(routing__strategy="kvaware")
    found = differences(BASE, theirs, mine)
    assert [(one.path, one.clash) for one in found] == [("routing.strategy", False)]
    assert merged(mine, found, {}) == with_(replicas=3, routing__strategy="kvaware")


@pytest.mark.parametrize(("choice", "kept"), [(THEIRS, 5), (MINE, 3), ("", 3), ("nonsense", 3)])
def test_conflicting_fields_are_chosen_and_default_to_mine(choice: str, kept: int) -> None:
    mine, theirs = with_(replicas=3), with_(replicas=5)
    (one,) = found = differences(BASE, theirs, mine)
    assert (one.before, one.theirs, one.mine, one.clash) == (1, 5, 3, True)
    assert merged(mine, found, {"replicas": choice})["replicas"] == kept


def test_identical_changes_are_no_conflict() -> None:
    assert differences(BASE, with_(replicas=3), with_(replicas=3)) == ()
    assert differences(BASE, with_(resources__memory_gib=4.0), with_(resources__cpus="1")) == ()


def test_choice_for_a_field_only_they_changed_is_ignored() -> None:
    theirs = with_(replicas=5)
    found = differences(BASE, theirs, BASE)
    assert merged(BASE, found, {"replicas": MINE})["replicas"] == 5


def test_every_field_is_chosen_without_a_known_base() -> None:
    mine, theirs = with_(replicas=3, tags={"a": "b"}), with_(routing__strategy="kvaware")
    found = differences(None, theirs, mine)
    assert {one.path for one in found} == {"replicas", "routing.strategy", "tags"}
    assert all(one.clash for one in found)
    assert merged(mine, found, {}) == mine
