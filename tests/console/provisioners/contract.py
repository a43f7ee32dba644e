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
    def test_nothing_there_is_an_answer(self, provisioner_rig: Rig) -> None:
        ref = Ref(provisioner_rig.provisioner.name, "nobody")
        assert provisioner_rig.provisioner.observe(ref) == Observation(exists=False)
        provisioner_rig.provisioner.delete(ref)
        assert provisioner_rig.provisioner.logs(ref) == {}

    def test_a_workload_becomes_ready_with_distinct_addresses(self, provisioner_rig: Rig) -> None:
        spec = provisioner_rig.spec("demo-worker", 2)
        assert provisioner_rig.provisioner.observe(provisioner_rig.provisioner.apply(spec)).exists
        seen = settle(provisioner_rig, spec)
        assert all(r.name.startswith("demo-worker-") for r in seen.replicas)
        assert len({r.name for r in seen.replicas}) == 2
        assert [r.index for r in seen.replicas] == [0, 1]
        assert {r.spec_hash for r in seen.replicas} == {spec.spec_hash}
        assert len({r.urls["http"] for r in seen.replicas}) == 2
        assert all(r.started_at > 0 and r.restarts == 0 for r in seen.replicas)

    def test_channels_have_addresses_of_their_own(self, provisioner_rig: Rig) -> None:
        spec = dataclasses.replace(provisioner_rig.spec("demo", 2), channels=("news", "old-news"))
        seen = settle(provisioner_rig, spec)
        addresses = [address for r in seen.replicas for address in r.channels.values()]
        assert all(set(r.channels) == {"news", "old-news"} for r in seen.replicas)
        assert len(set(addresses)) == 4
        assert settle(provisioner_rig, provisioner_rig.spec("other", 1)).replicas[0].channels == {}

    def test_apply_again_changes_nothing(self, provisioner_rig: Rig) -> None:
        spec = provisioner_rig.spec("demo", 2)
        before = settle(provisioner_rig, spec)
        ref = provisioner_rig.provisioner.apply(spec)
        assert ref == provisioner_rig.another().apply(spec)
        assert provisioner_rig.another().observe(ref).replicas == before.replicas

    def test_scale_down_takes_the_highest_and_up_again(self, provisioner_rig: Rig) -> None:
        three = settle(provisioner_rig, provisioner_rig.spec("demo", 3))
        one = settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        if provisioner_rig.provisioner.rolls:  # the platform chooses which one ends
            assert {r.name for r in one.replicas} < {r.name for r in three.replicas}
        else:
            assert one.replicas == three.replicas[:1]
        assert len(settle(provisioner_rig, provisioner_rig.spec("demo", 2)).replicas) == 2

    def test_zero_replicas_is_a_workload_that_exists(self, provisioner_rig: Rig) -> None:
        settle(provisioner_rig, provisioner_rig.spec("demo", 1))
        seen = settle(provisioner_rig, provisioner_rig.spec("demo", 0))
        assert seen.exists
        assert seen.replicas == ()

    def test_a_changed_spec_takes_the_place_of_the_old_one_by_one(
        self, provisioner_rig: Rig
    ) -> None:
        old, new = provisioner_rig.spec("demo", 3), provisioner_rig.spec("demo", 3, revision="2")
        before = settle(provisioner_rig, old)
        fewest = 3

        def done() -> Observation | None:
            nonlocal fewest
            seen = provisioner_rig.provisioner.observe(provisioner_rig.provisioner.apply(new))
            fewest = min(fewest, len(seen.ready()))
            return seen if len(seen.ready(new.spec_hash)) == 3 else None

        after = until(done, 60)
        if provisioner_rig.provisioner.rolls:
            assert fewest == 3
            assert not {r.name for r in after.ready(new.spec_hash)} & {
                r.name for r in before.replicas
            }
        else:
            assert fewest == 2
            assert [r.urls for r in after.replicas] == [r.urls for r in before.replicas]
        assert all(r.restarts == 0 for r in after.replicas)

    def test_live_files_and_replica_count_restart_nothing(self, provisioner_rig: Rig) -> None:
        spec = dataclasses.replace(
            provisioner_rig.spec("demo", 1), live_files=(FileSpec("table.json", "{}"),)
        )
        before = settle(provisioner_rig, spec)
        files = (FileSpec("table.json", '{"x": 1}'),)
        live = dataclasses.replace(spec, live_files=files, replicas=2)
        assert live.spec_hash == spec.spec_hash
        after = settle(provisioner_rig, live).replicas
        if provisioner_rig.provisioner.rolls:  # replicas of the same age have no order
            after = tuple(dataclasses.replace(r, index=0) for r in after)
            assert before.replicas[0] in after
        else:
            assert after[:1] == before.replicas

    def test_a_dead_replica_comes_back_by_itself_and_is_counted(self, provisioner_rig: Rig) -> None:
        spec = provisioner_rig.spec("demo", 2)
        before = settle(provisioner_rig, spec)
        ref = provisioner_rig.provisioner.apply(spec)
        provisioner_rig.crash(ref, 1)

        def counted() -> Observation | None:
            seen = provisioner_rig.provisioner.observe(ref)
            return seen if seen.replicas[1].restarts >= 1 and len(seen.ready()) == 2 else None

        after = until(counted)  # no apply in between
        assert after.replicas[0] == before.replicas[0]
        assert after.replicas[1].urls == before.replicas[1].urls

    def test_delete_leaves_nothing_and_is_idempotent(self, provisioner_rig: Rig) -> None:
        spec = provisioner_rig.spec("demo", 2)
        settle(provisioner_rig, spec)
        other = settle(provisioner_rig, provisioner_rig.spec("demo-1", 1))
        ref = provisioner_rig.provisioner.apply(spec)
        provisioner_rig.provisioner.delete(ref)
        provisioner_rig.another().delete(ref)
        seen = provisioner_rig.provisioner.observe(ref)
        assert {r.state for r in seen.replicas} <= {ReplicaState.STOPPING}
        gone(provisioner_rig, ref)
        provisioner_rig.provisioner.delete(ref)
        assert provisioner_rig.provisioner.logs(ref) == {}
        # A workload whose name has the same prefix is untouched.
        assert (
            provisioner_rig.provisioner.observe(Ref(ref.provisioner, "demo-1")).replicas
            == other.replicas
        )

    def test_a_deleted_name_can_be_used_again(self, provisioner_rig: Rig) -> None:
        spec = provisioner_rig.spec("demo", 1)
        settle(provisioner_rig, spec)
        ref = provisioner_rig.provisioner.apply(spec)
        provisioner_rig.provisioner.delete(ref)
        gone(provisioner_rig, ref)
        assert settle(provisioner_rig, spec).replicas[0].restarts == 0

    def test_logs_of_each_replica(self, provisioner_rig: Rig) -> None:
        spec = provisioner_rig.spec("demo", 2)
        settle(provisioner_rig, spec)
        ref = provisioner_rig.provisioner.apply(spec)
        logs = provisioner_rig.provisioner.logs(ref)
        assert list(logs) == [r.name for r in provisioner_rig.provisioner.observe(ref).replicas]
        assert all(logs.values())
        assert all(
            text.count("\n") <= 1 for text in provisioner_rig.provisioner.logs(ref, 1).values()
        )

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
        self, provisioner_rig: Rig, change: dict[str, Any], reason: str
    ) -> None:
        spec = dataclasses.replace(provisioner_rig.spec("demo", 1), **change)
        with pytest.raises(PermanentError) as caught:
            provisioner_rig.provisioner.apply(spec)
        assert caught.value.reason == reason
        assert not provisioner_rig.provisioner.observe(
            Ref(provisioner_rig.provisioner.name, "demo")
        ).exists

    def test_a_ref_of_another_provisioner_is_refused(self, provisioner_rig: Rig) -> None:
        with pytest.raises(PermanentError, match="belongs to"):
            provisioner_rig.provisioner.observe(Ref("elsewhere", "demo"))
