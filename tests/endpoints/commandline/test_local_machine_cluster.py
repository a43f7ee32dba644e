"""Logs and drift on the command line, with the decisions and errors of the pages."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from console.audit.models import AuditEvent
from console.provisioners.base import Drift
from endpoints.logs import sources
from endpoints.logs.sources import LogLine
from endpoints.models import DriftOrder, Endpoint
from endpoints.placement import provisioner
from tests.support.console import make_endpoint
from tests.support.endpoints.paper_cluster import PaperCluster
from tests.support.endpoints.reconciler_harness import ReconcilerHarness

pytestmark = pytest.mark.django_db
PAUSED = Drift("Deployment/demo-worker", ".spec.paused", False, True, "kubectl-edit", 1000.0)


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> PaperCluster:
    found = PaperCluster()
    monkeypatch.setattr(provisioner.clusters, "provisioner", lambda *_: found)
    return found


@pytest.fixture
def reconciler_harness(cluster: PaperCluster) -> ReconcilerHarness:
    return ReconcilerHarness(cluster)


def run(*words: str) -> str:
    out = io.StringIO()
    call_command("emberline", "endpoint", *words, stdout=out)
    return out.getvalue().rstrip()


def refused(*words: str) -> str:
    with pytest.raises(CommandError) as caught:
        run(*words)
    return str(caught.value)


# --- logs ---------------------------------------------------------------------------------------


def test_tail_of_a_cluster_log(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, placed: Endpoint, capsys: Any
) -> None:
    assert "no workers yet" in run("logs", "demo")
    reconciler_harness.until(placed, "Ready")
    first = placed.replicas.order_by("index", "name").first()
    assert first is not None
    shown = run("logs", "demo", "--tail", "2").splitlines()
    assert shown == [f"worker of {first.name}: line {n}" for n in (1, 2)]
    assert f"worker of {first.name}, ready" in capsys.readouterr().err
    assert run("logs", "demo", "--container", "fetch", "-f").startswith(
        f"fetch of {first.name}: line 0\n"
    )
    assert cluster.followed == [(2, False), (sources.TAIL_LINES, True)]


def test_unreadable_logs_are_named(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, placed: Endpoint
) -> None:
    reconciler_harness.until(placed, "Ready")
    first = placed.replicas.order_by("index", "name").first()
    assert first is not None
    known = f"{first.name} (worker), {first.name} (fetch)"
    for words, reported in (
        (("--worker", "stranger"), "demo has no stranger."),
        (("--container", "sidecar"), "demo has no sidecar."),
        (("--worker", first.name, "--container", "x"), f"demo has no x of {first.name}."),
    ):
        text = refused("logs", "demo", *words)
        assert reported in text
        assert known in text
    assert "Unknown endpoint other" in refused("logs", "other")
    for tail in ("0", "-1", "x", "2001", "9" * 30):
        assert "from 1 to 2000" in refused("logs", "demo", f"--tail={tail}")
    cluster.away = True
    assert "does not answer" in refused("logs", "demo")


def test_ctrl_c_exits_quietly(
    reconciler_harness: ReconcilerHarness,
    cluster: PaperCluster,
    placed: Endpoint,
    capsys: Any,
    monkeypatch: Any,
) -> None:
    reconciler_harness.until(placed, "Ready")

    def interrupted(*_args: Any, **_named: Any) -> Iterator[str]:
        yield "2026-01-01T00:00:00Z one"
        raise KeyboardInterrupt

    monkeypatch.setattr(cluster, "follow", interrupted)
    assert run("logs", "demo", "-f") == "one"


def test_local_log(reconciler_harness: ReconcilerHarness, placed: Endpoint) -> None:
    """What is shown first is `tail` lines; a busy log is known again by more than those."""
    del reconciler_harness, placed
    observations = iter((["a", "b", "c"], ["a", "b", "c", "d", "e", "f"]))
    stop = threading.Event()

    class Machine:
        name = "local"
        rolls = False
        announces = False

        def logs(self, _ref: Any, lines: int) -> dict[str, str]:
            now = next(observations)
            if len(now) > 3:
                stop.set()
            return {"demo-0": "\n".join(now[-lines:])}

    at = sources.Container("demo-worker", "demo-0", sources.PROCESS, "ready")
    machine: Any = Machine()
    lines = sources._poll_lines(machine, at, stop, 1)
    assert next(lines) == LogLine("c", anew=True)
    assert [line.text for line in lines] == ["d", "e", "f"]
    observations = iter((["a", "b"],))
    once = sources.LogSource(machine, at).end(1)
    assert [line.text for line in once] == ["b"]


# --- drift --------------------------------------------------------------------------------------


def test_drift_is_shown_healed_and_adopted(
    reconciler_harness: ReconcilerHarness, cluster: PaperCluster, placed: Endpoint
) -> None:
    assert "No drift" in run("drift", "demo")
    cluster.drift = (PAUSED,)
    reconciler_harness.until(placed, "Degraded")
    head, row = run("drift", "demo").splitlines()
    assert head.split() == ["KEY", "DESIRED", "ACTUAL", "CHANGED", "BY", "SINCE", "WORKLOAD"]
    assert row.split() == [
        *(PAUSED.key, "false", "true", "kubectl-edit"),
        *("1970-01-01", "00:16:40", "demo-worker"),
    ]
    assert [one["key"] for one in json.loads(run("drift", "demo", "-o", "json"))] == [PAUSED.key]
    assert "Reverting demo-worker to its spec" in run("heal", "demo")
    assert DriftOrder.objects.get().workload == "demo-worker"
    assert f"{PAUSED.key} keeps its current value" in run("adopt", "demo", PAUSED.key)
    assert set(DriftOrder.objects.values_list("key", flat=True)) == {"", PAUSED.key}
    received = AuditEvent.objects.filter(verb__in=("endpoint.heal", "endpoint.adopt"))
    assert {event.actor_name for event in received} == {"system"}


def test_healing_without_drift_is_rejected(placed: Endpoint) -> None:
    assert "demo has no drift Deployment/x" in refused("adopt", "demo", "Deployment/x.spec")
    assert "has no drift stranger" in refused("heal", "demo", "--workload", "stranger")
    make_endpoint(name="here")
    assert "runs on this machine" in refused("heal", "here")
    assert "Unknown endpoint other" in refused("drift", "other")
