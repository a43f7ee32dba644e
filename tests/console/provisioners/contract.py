"""Contract tests for every provisioner. A rig builds specs and breaks replicas.

Subclass `ProvisionerContract` and provide a `rig` fixture. A provisioner with `rolls` chooses new
names and addresses and never has fewer ready replicas than wanted; everything else is equal.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import pytest

from console.provisioners.base import (
    FileSpec,
    Observation,
    PermanentError,
    Probe,
    Provisioner,
    Ref,
    ReplicaState,
    WorkloadSpec,
)
from tests.support.waiting import until


class Rig(Protocol):
    provisioner: Provisioner

    def spec(self, name: str, replicas: int, revision: str = "1") -> WorkloadSpec: ...

    def another(self) -> Provisioner:
        """Return a second provisioner for the same state, as in another process."""
        ...

    def crash(self, ref: Ref, index: int) -> None: ...


def settle(rig: Rig, spec: WorkloadSpec) -> Observation:
    """Apply until all wanted replicas run the spec and serve, like the reconciler."""

    def done() -> Observation | None:
        ref = rig.provisioner.apply(spec)
        seen = rig.provisioner.observe(ref)
        good = len(seen.ready(spec.spec_hash)) == spec.replicas == len(seen.replicas)
        return seen if good else None

    return until(done, what=f"{spec.name} as wanted")


def gone(rig: Rig, ref: Ref) -> None:
    until(lambda: not rig.provisioner.observe(ref).exists, what=f"{ref.name} gone")


class ProvisionerContract:
    def test_nothing_there_is_an_answer(self, rig: Rig) -> None:
        ref = Ref(rig.provisioner.name, "nobody")
        assert rig.provisioner.observe(ref) == Observation(exists=False)
        rig.provisioner.delete(ref)
        assert rig.provisioner.logs(ref) == {}

    def test_a_workload_becomes_ready_with_distinct_addresses(self, rig: Rig) -> None:
        spec = rig.spec("demo-worker", 2)
        first = rig.provisioner.observe(rig.provisioner.apply(spec))
        assert first.exists
        assert not first.ready()
        seen = settle(rig, spec)
        assert all(r.name.startswith("demo-worker-") for r in seen.replicas)
        assert len({r.name for r in seen.replicas}) == 2
        assert [r.index for r in seen.replicas] == [0, 1]
        assert {r.spec_hash for r in seen.replicas} == {spec.spec_hash}
        assert len({r.urls["http"] for r in seen.replicas}) == 2
        assert all(r.started_at > 0 and r.restarts == 0 for r in seen.replicas)

    def test_channels_have_addresses_of_their_own(self, rig: Rig) -> None:
        spec = dataclasses.replace(rig.spec("demo", 2), channels=("news", "old-news"))
        seen = settle(rig, spec)
        addresses = [address for r in seen.replicas for address in r.channels.values()]
        assert all(set(r.channels) == {"news", "old-news"} for r in seen.replicas)
        assert len(set(addresses)) == 4
        assert settle(rig, rig.spec("other", 1)).replicas[0].channels == {}

    def test_apply_again_changes_nothing(self, rig: Rig) -> None:
        spec = rig.spec("demo", 2)
        before = settle(rig, spec)
        ref = rig.provisioner.apply(spec)
        assert ref == rig.another().apply(spec)
        assert rig.another().observe(ref).replicas == before.replicas

    def test_scale_down_takes_the_highest_and_up_again(self, rig: Rig) -> None:
        three = settle(rig, rig.spec("demo", 3))
        one = settle(rig, rig.spec("demo", 1))
        if rig.provisioner.rolls:  # the platform chooses which one ends
            assert {r.name for r in one.replicas} < {r.name for r in three.replicas}
        else:
            assert one.replicas == three.replicas[:1]
        assert len(settle(rig, rig.spec("demo", 2)).replicas) == 2

    def test_zero_replicas_is_a_workload_that_exists(self, rig: Rig) -> None:
        settle(rig, rig.spec("demo", 1))
        seen = settle(rig, rig.spec("demo", 0))
        assert seen.exists
        assert seen.replicas == ()

    def test_a_changed_spec_takes_the_place_of_the_old_one_by_one(self, rig: Rig) -> None:
        old, new = rig.spec("demo", 3), rig.spec("demo", 3, revision="2")
        before = settle(rig, old)
        fewest = 3

        def done() -> Observation | None:
            nonlocal fewest
            seen = rig.provisioner.observe(rig.provisioner.apply(new))
            fewest = min(fewest, len(seen.ready()))
            return seen if len(seen.ready(new.spec_hash)) == 3 else None

        after = until(done, 60)
        if rig.provisioner.rolls:
            assert fewest == 3
            assert not {r.name for r in after.ready(new.spec_hash)} & {
                r.name for r in before.replicas
            }
        else:
            assert fewest == 2
            assert [r.urls for r in after.replicas] == [r.urls for r in before.replicas]
        assert all(r.restarts == 0 for r in after.replicas)

    def test_live_files_and_replica_count_restart_nothing(self, rig: Rig) -> None:
        spec = dataclasses.replace(rig.spec("demo", 1), live_files=(FileSpec("table.json", "{}"),))
        before = settle(rig, spec)
        files = (FileSpec("table.json", '{"x": 1}'),)
        live = dataclasses.replace(spec, live_files=files, replicas=2)
        assert live.spec_hash == spec.spec_hash
        after = settle(rig, live).replicas
        if rig.provisioner.rolls:  # replicas of the same age have no order
            after = tuple(dataclasses.replace(r, index=0) for r in after)
            assert before.replicas[0] in after
        else:
            assert after[:1] == before.replicas

    def test_a_dead_replica_comes_back_by_itself_and_is_counted(self, rig: Rig) -> None:
        spec = rig.spec("demo", 2)
        before = settle(rig, spec)
        ref = rig.provisioner.apply(spec)
        rig.crash(ref, 1)

        def counted() -> Observation | None:
            seen = rig.provisioner.observe(ref)
            return seen if seen.replicas[1].restarts >= 1 and len(seen.ready()) == 2 else None

        after = until(counted)  # no apply in between
        assert after.replicas[0] == before.replicas[0]
        assert after.replicas[1].urls == before.replicas[1].urls

    def test_delete_leaves_nothing_and_is_idempotent(self, rig: Rig) -> None:
        spec = rig.spec("demo", 2)
        settle(rig, spec)
        other = settle(rig, rig.spec("demo-1", 1))
        ref = rig.provisioner.apply(spec)
        rig.provisioner.delete(ref)
        rig.another().delete(ref)
        seen = rig.provisioner.observe(ref)
        assert {r.state for r in seen.replicas} <= {ReplicaState.STOPPING}
        gone(rig, ref)
        rig.provisioner.delete(ref)
        assert rig.provisioner.logs(ref) == {}
        # A workload whose name has the same prefix is untouched.
        assert rig.provisioner.observe(Ref(ref.provisioner, "demo-1")).replicas == other.replicas

    def test_a_deleted_name_can_be_used_again(self, rig: Rig) -> None:
        spec = rig.spec("demo", 1)
        settle(rig, spec)
        ref = rig.provisioner.apply(spec)
        rig.provisioner.delete(ref)
        gone(rig, ref)
        assert settle(rig, spec).replicas[0].restarts == 0

    def test_logs_of_each_replica(self, rig: Rig) -> None:
        spec = rig.spec("demo", 2)
        settle(rig, spec)
        ref = rig.provisioner.apply(spec)
        logs = rig.provisioner.logs(ref)
        assert list(logs) == [r.name for r in rig.provisioner.observe(ref).replicas]
        assert all(logs.values())
        assert all(text.count("\n") <= 1 for text in rig.provisioner.logs(ref, 1).values())

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"name": "../etc"}, "BadName"),
            ({"name": "Demo"}, "BadName"),
            ({"argv": ()}, "BadSpec"),
            ({"argv": ("x", "{port:admin}")}, "UnknownPort"),
            ({"probe": Probe("/health", "admin")}, "UnknownPort"),
            ({"replicas": -1}, "BadSpec"),
            ({"files": (FileSpec("../x", ""),)}, "BadSpec"),
            ({"files": (FileSpec("/etc/x", ""),)}, "BadSpec"),
            ({"files": (FileSpec(".emberline/launch.json", ""),)}, "BadSpec"),
            ({"files": (FileSpec("a", ""),), "live_files": (FileSpec("a", ""),)}, "BadSpec"),
            ({"env": {"A B": ""}}, "BadSpec"),
        ],
    )
    def test_an_impossible_spec_is_refused(
        self, rig: Rig, change: dict[str, Any], reason: str
    ) -> None:
        spec = dataclasses.replace(rig.spec("demo", 1), **change)
        with pytest.raises(PermanentError) as caught:
            rig.provisioner.apply(spec)
        assert caught.value.reason == reason
        assert not rig.provisioner.observe(Ref(rig.provisioner.name, "demo")).exists

    def test_a_ref_of_another_provisioner_is_refused(self, rig: Rig) -> None:
        with pytest.raises(PermanentError, match="belongs to"):
            rig.provisioner.observe(Ref("elsewhere", "demo"))
