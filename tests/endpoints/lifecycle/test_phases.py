"""Phase table: every row is reached, and every combination of facts has a phase."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from endpoints.choices import Phase, PhaseReason, ProgressState, ProgressStep
from endpoints.lifecycle.facts import (
    Impairment,
    LifecycleFacts,
    ObservedComponent,
    ObservedWorker,
    Trouble,
)
from endpoints.lifecycle.phases import TABLE, decide
from endpoints.lifecycle.remedies import remedy_of
from endpoints.lifecycle.steps import StepNow, build_steps, merge_steps

GOOD = ObservedWorker("w-0", ready=True, running=True, current=True)
STARTING = replace(GOOD, ready=False)
OUTDATED = replace(GOOD, current=False)
LOOPING = replace(GOOD, ready=False, running=False, crashes=3, message="Exited with 1.")
GONE = replace(GOOD, ready=False, running=False)
SURPLUS = replace(GOOD, surplus=True)
ROUTER = ObservedComponent("router", ready=True)
NO_ROUTER = ObservedComponent("router", ready=False, reason="RouterSilent", message="No answer.")
IMPAIRED = replace(ROUTER, impairment=Impairment("RoutingFallback", "It guesses.", "Ask it."))
TIER = ObservedComponent("cache tier", ready=True)
NO_TIER = ObservedComponent("cache tier", ready=False, message="It starts.", usable=False)
TIER_AWAY = ObservedComponent("cache tier", ready=False, message="It is away.")
REFUSED = Trouble(True, "NoProgram", "There is no vllm.")
AWAY = Trouble(False, "SupervisorAway", "No supervisor.")


def facts(**given: Any) -> LifecycleFacts:
    standing = {"wanted": 1, "workers": (GOOD,), "components": (ROUTER,), "proven": True}
    served = {"served": True, "served_once": True}
    return LifecycleFacts(**{**standing, **served, **given})


NEW = {"served": False, "served_once": False, "proven": False}
ROLLING = {"served": False, "proven": False}
TWO = {"wanted": 2}
STUCK = replace(STARTING, reason="Unschedulable", message="0/3 nodes have a GPU.")
QUOTA = Trouble(False, "QuotaExceeded", "exceeded quota: pods.")
GAVE_UP = Trouble(True, "ProgressDeadlineExceeded", "The rollout stands still.")
ROUTE = ObservedComponent("route", ready=False, reason="NoParent", message="No gateway took it.")
LIFTED = ObservedComponent("router", ready=False, reason="PodsUnreachable", message="No way to it.")
AUTO = {"autoscaled": True}
DRIFTED = Impairment("Drifted", "Somebody scaled it.", "Heal it.")

# One line for each row of the table, in its order.
ROWS: list[tuple[str, str, dict[str, Any]]] = [
    ("Deleting", "RemovingRouter", {"deleting": True, "components_left": True}),
    ("Deleting", "StoppingWorkers", {"deleting": True}),
    ("Degraded", "SupervisorAway", {"observed": False, "trouble": AWAY}),
    ("Provisioning", "SupervisorAway", {"observed": False, "trouble": AWAY, **NEW}),
    ("Degraded", "NoProgram", {"trouble": REFUSED}),
    ("Failed", "NoProgram", {"trouble": REFUSED, "workers": (), **NEW}),
    ("Pausing", "Scaling", {"wanted": 0, "workers": (SURPLUS,), **AUTO}),
    ("Pausing", "Pausing", {"wanted": 0, "workers": (SURPLUS,), **ROLLING}),
    ("Paused", "ScaledToZero", {"wanted": 0, "workers": (), **AUTO}),
    ("Paused", "Paused", {"wanted": 0, "workers": ()}),
    ("Failed", "WorkersCrashLooping", {"workers": (LOOPING,), **NEW}),
    ("Degraded", "WorkersCrashLooping", {**TWO, "workers": (GOOD, LOOPING)}),
    ("Failed", "ProgressDeadlineExceeded", {"failed": GAVE_UP, "workers": (STARTING,), **NEW}),
    (
        "Degraded",
        "ProgressDeadlineExceeded",
        {"failed": GAVE_UP, **TWO, "workers": (OUTDATED, STARTING), **ROLLING},
    ),
    ("Failed", "DeployDeadlineExceeded", {"workers": (STARTING,), "overdue": True, **NEW}),
    (
        "Degraded",
        "DeployDeadlineExceeded",
        {**TWO, "workers": (GOOD, STARTING), "overdue": True, **ROLLING},
    ),
    ("Provisioning", "WaitingForCacheTier", {"cache": NO_TIER, "workers": (), **NEW}),
    ("Updating", "Draining", {"draining": ("w-1",), **TWO, **ROLLING}),
    ("Provisioning", "Unschedulable", {"workers": (STUCK,), **NEW}),
    ("Updating", "UpdatingWorkers", {"workers": (OUTDATED,), **ROLLING}),
    ("Provisioning", "StartingWorkers", {"workers": (), **NEW}),
    ("Updating", "StoppingWorkers", {"workers": (GOOD, replace(SURPLUS, ready=False)), **ROLLING}),
    ("Provisioning", "WaitingForWorkers", {"workers": (STARTING,), **NEW}),
    ("Provisioning", "WaitingForRouter", {"components": (NO_ROUTER,), **NEW}),
    ("Provisioning", "ExposureUnavailable", {"exposure": (ROUTE,), **NEW}),
    ("Provisioning", "Proving", NEW),
    ("Provisioning", "Scaling", {**AUTO, "workers": (STARTING,)}),
    ("Unavailable", "Unschedulable", {"workers": (STUCK,)}),
    ("Degraded", "Drifted", {**TWO, "drifted": DRIFTED, "scaled_by_drift": True}),
    ("Unavailable", "NoWorkerAvailable", {"workers": (GONE,)}),
    ("Degraded", "QuotaExceeded", {**TWO, "stalled": QUOTA}),
    ("Degraded", "WorkerUnavailable", {**TWO, "workers": (GOOD, GONE)}),
    ("Degraded", "RouterUnavailable", {"components": (NO_ROUTER,)}),
    ("Degraded", "ExposureUnavailable", {"exposure": (ROUTE,)}),
    ("Degraded", "NotServing", {"proven": False, "proof_error": "HTTP 502"}),
    ("Degraded", "L2Unavailable", {"cache": TIER_AWAY}),
    ("Degraded", "RoutingFallback", {"components": (IMPAIRED,)}),
    ("Ready", "Scaling", {**AUTO, **TWO, "stood": 1, "workers": (GOOD, STARTING)}),
    ("Ready", "Serving", {}),
]


@pytest.mark.parametrize(("phase", "reason", "given"), ROWS, ids=[f"{p}-{r}" for p, r, _ in ROWS])
def test_each_row_of_the_phase_table(phase: str, reason: str, given: dict[str, Any]) -> None:
    verdict = decide(facts(**given))
    assert (str(verdict.phase), str(verdict.reason)) == (phase, reason)
    assert verdict.message


def test_phase_table_lists_every_case_in_order() -> None:
    hit = [next(i for i, row in enumerate(TABLE) if row.when(facts(**given))) for *_, given in ROWS]
    assert hit == list(range(len(TABLE)))


def every_combination() -> list[LifecycleFacts]:
    """All that can meet, about fifty thousand."""
    workers = [
        (),
        (GOOD,),
        (STARTING,),
        (LOOPING,),
        (OUTDATED,),
        (GOOD, SURPLUS),
        (GOOD, GOOD),
        (GOOD, LOOPING),
        (GOOD, OUTDATED),
        (GONE, GONE),
    ]
    flags = list(itertools.product((False, True), repeat=6))
    return [
        LifecycleFacts(
            wanted=wanted,
            workers=seen,
            cache=cache,
            components=parts,
            trouble=trouble,
            observed=observed or trouble is None,
            deleting=deleting,
            served=served,
            served_once=served_once,
            proven=proven,
            overdue=overdue,
        )
        for wanted in (0, 1, 2)
        for seen in workers
        for cache in (None, TIER, TIER_AWAY, NO_TIER)
        for parts in ((ROUTER,), (NO_ROUTER,))
        for trouble in (None, REFUSED, AWAY)
        for deleting, observed, served, served_once, proven, overdue in flags
    ]


def test_every_combination_has_a_phase_and_ready_means_serving() -> None:
    for found in every_combination():
        verdict = decide(found)
        assert verdict.reason
        if verdict.phase is Phase.READY:
            assert found.enough
            assert found.wanted > 0
            assert found.proven
            assert found.served
            assert found.absent is None
            assert found.observed
            assert not found.deleting
            assert found.cache is None or found.cache.ready
        if verdict.phase is Phase.PAUSED:
            assert not found.workers
        if verdict.phase is Phase.FAILED:
            assert found.ready == 0
        if found.deleting:
            assert verdict.phase is Phase.DELETING
        if verdict.phase is Phase.UNAVAILABLE:
            assert found.ready == 0
            assert found.served_once
        if verdict.phase is Phase.UPDATING:
            assert found.ready > 0
            assert not found.served
        if verdict.phase in (Phase.DEGRADED, Phase.UNAVAILABLE, Phase.FAILED):
            assert remedy_of(verdict)
        shown = build_steps(found, verdict.phase)
        order = [step.code for step in shown]
        assert order == [code for code in ProgressStep if code in order] or found.deleting
        if verdict.phase is Phase.READY:
            assert {step.state for step in shown} == {ProgressState.DONE}
        if verdict.phase is Phase.FAILED:
            failed = [step for step in shown if step.state is ProgressState.FAILED]
            assert len(failed) <= 1


def test_recovered_component_restores_ready() -> None:
    for given in (
        {**TWO, "workers": (GOOD, GONE)},
        {"components": (NO_ROUTER,)},
        {"cache": TIER_AWAY},
        {"observed": False, "trouble": AWAY},
    ):
        assert decide(facts(**given)).phase is Phase.DEGRADED
        assert decide(facts()).phase is Phase.READY


def test_messages_name_the_object_and_the_reason() -> None:
    assert "Exited with 1." in decide(facts(workers=(LOOPING,))).message
    killed = replace(GONE, name="w-1", message="Killed.")
    assert "w-1: Killed" in decide(facts(**TWO, workers=(GOOD, killed))).message
    assert "No answer." in decide(facts(components=(NO_ROUTER,))).message
    assert "HTTP 502" in decide(facts(proven=False, proof_error="HTTP 502")).message
    assert remedy_of(decide(facts())) == ""


# --- steps --------------------------------------------------------------------------------------

T0 = datetime(2026, 1, 1, tzinfo=UTC)


def codes(found: tuple[StepNow, ...]) -> dict[str, str]:
    return {str(step.code): str(step.state) for step in found}


def test_steps_are_sequential() -> None:
    waiting = build_steps(facts(cache=NO_TIER, workers=(), **NEW), Phase.PROVISIONING)
    assert codes(waiting) == {
        "Accepted": "done",
        "CacheTier": "active",
        "WorkersStarted": "waiting",
        "WorkersReady": "waiting",
        "RouterReady": "active",
        "Serving": "waiting",
    }
    loading = build_steps(facts(workers=(STARTING,), **NEW), Phase.PROVISIONING)
    assert codes(loading)["WorkersStarted"] == "done"
    assert codes(loading)["WorkersReady"] == "active"
    assert "CacheTier" not in codes(loading)
    proving = build_steps(facts(**NEW), Phase.PROVISIONING)
    assert codes(proving)["Serving"] == "active"
    failed = build_steps(facts(workers=(LOOPING,), **NEW), Phase.FAILED)
    assert codes(failed)["WorkersStarted"] == "failed"
    assert codes(failed)["Serving"] == "waiting"


def test_times_are_kept_between_passes() -> None:
    def at(second: int, state: ProgressState, before: list[Any], anew: bool = False) -> list[Any]:
        now = T0 + timedelta(seconds=second)
        return merge_steps(before, now, [StepNow(ProgressStep.WORKERS_READY, state)], anew=anew)

    def spent(found: list[Any]) -> tuple[str, str]:
        return found[0]["started_at"][17:19], found[0]["finished_at"][17:19]

    found = at(0, ProgressState.WAITING, [])
    assert spent(found) == ("", "")
    found = at(1, ProgressState.ACTIVE, found)
    assert spent(at(5, ProgressState.ACTIVE, found)) == ("01", "")
    found = at(7, ProgressState.DONE, found)
    assert spent(found) == ("01", "07")
    assert spent(at(9, ProgressState.DONE, found)) == ("01", "07")
    # Lost again: the clock of the loss starts now.
    lost = at(20, ProgressState.ACTIVE, found)
    assert spent(lost) == ("20", "")
    assert spent(at(22, ProgressState.DONE, lost)) == ("20", "22")
    assert spent(at(30, ProgressState.DONE, found, anew=True)) == ("30", "30")
    # One that was over before the first observation takes no time.
    assert spent(at(3, ProgressState.DONE, [])) == ("03", "03")


def test_reasons_are_listed_in_the_table() -> None:
    combined = facts(trouble=AWAY, components=(IMPAIRED,), failed=GAVE_UP, workers=(STUCK,))
    stalled = replace(combined, stalled=QUOTA)
    reported = {row.reason(one) for row in TABLE for one in (combined, stalled)}
    others = {"SupervisorAway", "RoutingFallback", GAVE_UP.reason, STUCK.reason, QUOTA.reason}
    assert reported - others <= {str(reason) for reason in PhaseReason}


def test_impaired_component_has_a_remedy_and_yields_to_every_loss() -> None:
    found = decide(facts(components=(ROUTER, IMPAIRED)))
    assert (found.message, remedy_of(found)) == ("It guesses.", "Ask it.")
    away = decide(facts(components=(replace(IMPAIRED, ready=False),)))
    assert away.reason == PhaseReason.ROUTER_UNAVAILABLE
    assert decide(facts(components=(IMPAIRED,), **ROLLING)).phase == Phase.UPDATING
    assert (
        decide(facts(components=(IMPAIRED,), cache=TIER_AWAY)).reason == PhaseReason.L2_UNAVAILABLE
    )


# --- on a cluster -------------------------------------------------------------------------------


def test_lost_replicas_are_a_loss_under_an_autoscaler_too() -> None:
    """Two served, three are wanted, one is there: no autoscaler requested that."""
    given = {**AUTO, "wanted": 3, "stood": 2, "workers": (GOOD, STARTING, STARTING)}
    assert decide(facts(**given)).reason == PhaseReason.WORKER_UNAVAILABLE
    given["workers"] = (GOOD, GOOD, STARTING)
    assert decide(facts(**given)).phase is Phase.READY
    assert decide(facts(**{**given, "autoscaled": False})).phase is Phase.DEGRADED


def test_leaving_workers_are_not_missing() -> None:
    leaving = replace(GOOD, ready=False, current=False, leaving=True)
    assert decide(facts(workers=(GOOD, leaving))).phase is Phase.READY
    assert decide(facts(workers=(GOOD, leaving), **ROLLING)).reason == PhaseReason.PROVING


def test_unreachable_pods_are_reported() -> None:
    assert decide(facts(components=(LIFTED,))).reason == PhaseReason.PODS_UNREACHABLE
    found = decide(facts(components=(LIFTED,), **NEW))
    assert found.reason == PhaseReason.PODS_UNREACHABLE
    assert "in the cluster" in remedy_of(found)


def test_router_port_in_use_degrades_the_endpoint_with_a_remedy() -> None:
    held = ObservedComponent(
        "router", False, PhaseReason.ROUTER_PORT_TAKEN, "Port 20001 is in use by pid 7 (nc)."
    )
    found = decide(facts(components=(held,)))
    assert (found.phase, found.reason) == (Phase.DEGRADED, PhaseReason.ROUTER_PORT_TAKEN)
    assert "in use by pid 7 (nc)" in found.message
    assert "Stop that process" in remedy_of(found)
    assert decide(facts(components=(held,), **NEW)).reason == PhaseReason.ROUTER_PORT_TAKEN


def test_drift_is_an_impairment_with_a_remedy() -> None:
    found = decide(facts(drifted=DRIFTED))
    assert (found.phase, found.reason, found.remedy) == (Phase.DEGRADED, "Drifted", "Heal it.")


def test_surplus_workers_are_no_loss() -> None:
    """A user scaled the Deployment: four of two serve."""
    many = {"wanted": 1, "workers": (GOOD, replace(GOOD, name="w-1"))}
    assert decide(facts(drifted=DRIFTED, **many)).reason == "Drifted"
    stopping = decide(facts(**many))
    assert stopping.phase is Phase.READY
    assert stopping.message == "1/1 workers ready. 1 worker stopping."
    missing = {"wanted": 2, "workers": (GOOD, STARTING)}
    assert decide(facts(drifted=DRIFTED, **missing)).reason == PhaseReason.WORKER_UNAVAILABLE


def test_previous_revision_that_serves_is_named() -> None:
    workers = (GOOD, replace(OUTDATED, ready=True))
    after = decide(facts(workers=workers))
    assert after.phase is Phase.READY
    assert after.message == "1/1 workers ready. 1 worker of the previous revision stopping."
    during = decide(facts(wanted=2, workers=(STUCK, *workers[1:]), **ROLLING))
    assert during.message.startswith(
        "0/2 updated workers ready; 1 worker of the previous revision serving."
    )


def test_count_set_by_others_is_drift_not_a_loss() -> None:
    """`kubectl scale`: nothing restarts the workers that are missing."""
    scaled = {"wanted": 2, "drifted": DRIFTED, "scaled_by_drift": True}
    for workers, text in ((GOOD,), "1/2"), ((), "0/2"):
        found = decide(facts(workers=workers, **scaled))
        phase = Phase.DEGRADED if workers else Phase.UNAVAILABLE
        assert (found.phase, found.reason) == (phase, "Drifted")
        assert found.message == f"{text} workers ready. Somebody scaled it."
        assert remedy_of(found) == "Heal it."
    crashed = decide(facts(workers=(GOOD, GONE), **scaled))
    assert crashed.reason == PhaseReason.WORKER_UNAVAILABLE


def staged(*stages: str, **given: Any) -> tuple[StepNow, ...]:
    workers = tuple(replace(STARTING, stage=stage) for stage in stages)
    return build_steps(
        facts(wanted=2, workers=workers, staged=True, **{**NEW, **given}), Phase.PENDING
    )


def test_cluster_steps_follow_the_slowest_worker() -> None:
    found = codes(staged("loading", "pulling"))
    assert [code for code in found if found[code] == "done"] == ["Accepted", "Scheduled"]
    assert found["ImagePulled"] == "active"
    assert found["Loaded"] == "active"
    assert "WorkersStarted" not in found
    found = codes(staged("scheduling", "scheduling"))
    assert (found["Scheduled"], found["ImagePulled"]) == ("active", "waiting")


def test_stalled_step_states_its_reason() -> None:
    workers = (replace(STUCK, stage="scheduling"),)
    found = build_steps(facts(workers=workers, staged=True, **NEW), Phase.PENDING)
    content = {step.code: step.message for step in found}
    assert content[ProgressStep.SCHEDULED] == "0/1. 0/3 nodes have a GPU."


def test_route_and_certificate_are_separate_steps() -> None:
    good = replace(GOOD, stage="ready")
    certificate = ObservedComponent("certificate", ready=True)
    given = {"staged": True, "workers": (good,), "exposure": (ROUTE, certificate)}
    found = codes(build_steps(facts(**given, **NEW), Phase.PENDING))
    assert (found["RouteReady"], found["CertificateReady"]) == ("active", "done")
    assert found["Serving"] == "waiting"


# --- an earlier revision's workers --------------------------------------------------------------

OLD_LOOPING = replace(LOOPING, name="old-0", current=False, reason="CrashLoopBackOff")


def test_only_workers_of_the_target_revision_cause_failure() -> None:
    """Corrected after it crashed: the old pod is still there, dead, beside the new one."""
    for life, phase in ((NEW, Phase.PROVISIONING), (ROLLING, Phase.UNAVAILABLE)):
        for new in ((), (STARTING,), (replace(STARTING, name="new-0"),)):
            found = decide(facts(workers=(OLD_LOOPING, *new), **life))
            assert found.phase is phase, (life, new)
            assert found.reason != PhaseReason.WORKERS_CRASH_LOOPING
            assert found.reason != "CrashLoopBackOff", "an old pod's reason is not the new one's"
    leaving = replace(LOOPING, leaving=True)
    assert decide(facts(workers=(STARTING, leaving), **ROLLING)).phase is Phase.UNAVAILABLE
    assert decide(facts(workers=(OLD_LOOPING, LOOPING), **ROLLING)).phase is Phase.FAILED


def test_outdated_workers_are_marked() -> None:
    text = decide(facts(workers=(OLD_LOOPING, STARTING), **ROLLING)).message
    assert "old-0 (previous revision): Exited with 1." in text
    text = decide(facts(**TWO, workers=(GOOD, OLD_LOOPING))).message
    assert "old-0 (previous revision)" in text


# --- a worker that cannot be placed -------------------------------------------------------------

NODES = "0/3 nodes are available: "
TAIL = ". preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
GPU = "1 Insufficient nvidia.com/gpu"
TAINT = "1 node(s) had untolerated taint {nvidia.com/gpu: present}"
CORDONED = "1 node(s) were unschedulable"
AFFINITY = "1 node(s) didn't match Pod's node affinity/selector"


@pytest.mark.parametrize(
    ("why", "what_helps"),
    [
        ((GPU,), ("Free GPUs",)),
        ((TAINT,), ("placement.tolerations",)),
        ((CORDONED,), ("kubectl uncordon",)),
        ((AFFINITY,), ("node_affinity",)),
        (("3 Insufficient memory",), ("resources.memory_gib",)),
        (("3 Insufficient cpu",), ("CPU request",)),
        (("1 node(s) had volume node affinity conflict",), ("zone of the volume",)),
        (('persistentvolumeclaim "models" not found',), ("source.claim",)),
        ((GPU, TAINT, CORDONED), ("Free GPUs", "placement.tolerations", "kubectl uncordon")),
    ],
)
@pytest.mark.parametrize("others", [(), (GOOD,)], ids=["alone", "beside one that serves"])
def test_pending_worker_after_a_drain_has_a_reason_and_a_remedy(
    why: tuple[str, ...], what_helps: tuple[str, ...], others: tuple[ObservedWorker, ...]
) -> None:
    text = f"{NODES}{', '.join(why)}{TAIL}"
    pending = replace(STUCK, name="w-1", message=text)
    found = decide(facts(wanted=len(others) + 1, workers=(*others, pending)))
    assert (found.phase, found.reason) == (
        (Phase.DEGRADED if others else Phase.UNAVAILABLE),
        "Unschedulable",
    )
    assert text.rstrip(".") in found.message
    reported = remedy_of(found)
    assert "Nothing has to be done" not in reported
    for words in what_helps:
        assert words in reported


def test_unknown_scheduler_messages_get_the_general_remedy() -> None:
    found = decide(facts(workers=(replace(STUCK, message=f"{NODES}3 something new{TAIL}"),)))
    assert "Add nodes" in remedy_of(found)
    router = replace(NO_ROUTER, message=f"r-0 is starting: {NODES}3 Insufficient cpu{TAIL}")
    assert "CPU request" in remedy_of(decide(facts(components=(router,))))


@pytest.mark.parametrize("reason", ["Hung", "OOMKilled", "ImagePullBackOff"])
def test_reasons_that_need_an_operator_are_shown_on_the_endpoint(reason: str) -> None:
    found = decide(facts(**TWO, workers=(GOOD, replace(STARTING, reason=reason, message="So."))))
    assert (found.phase, found.reason) == (Phase.DEGRADED, reason)
    assert "Nothing has to be done" not in remedy_of(found)
