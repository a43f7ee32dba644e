"""Start cache proofs and calibrations; at most one live run of each per endpoint."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.accounts.credentials import stored_actor
from console.accounts.permissions import require
from console.audit.record import record
from dashboards import tasks
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.models import Calibration, ProofRun
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.refusals import ConflictError
from endpoints.runs import RunState

# Longer than the longest stage of a live run (one request deadline plus one wait).
ABANDONED_S = 150


def start_proof(actor: Any, name: str) -> ProofRun:
    """Queue a proof. Raise ConflictError while one is live or the endpoint cannot serve."""
    endpoint = get_serving_endpoint(actor, name)
    run = ProofRun(endpoint=endpoint, generation=endpoint.generation)
    _queue(actor, run, "proof.start", tasks.run_proof)
    return run


def start_calibration(actor: Any, name: str) -> Calibration:
    """Queue a measurement of prefill time per prompt token. It computes a few thousand tokens."""
    run = _new_calibration(get_serving_endpoint(actor, name))
    _queue(actor, run, "calibration.start", tasks.run_calibration)
    return run


def start_automatic_calibration(endpoint: Endpoint) -> Calibration:
    """Queue a calibration by the console itself; `auto_calibration` decides when."""
    run = _new_calibration(endpoint)
    run.automatic = True
    _queue(None, run, "calibration.start", tasks.run_calibration)
    return run


def _new_calibration(endpoint: Endpoint) -> Calibration:
    return Calibration(
        endpoint=endpoint,
        settings_hash=endpoint.status.worker_hash,
        measured_as=parse_stored_needs(endpoint.spec).settings,
    )


def _queue(actor: Any, run: ProofRun | Calibration, verb: str, task: Any) -> None:
    fail_abandoned_runs()
    name = run.endpoint.name
    run.simulated = run.endpoint.parsed.simulated
    run.stage = "Waiting for a background worker"
    run.started_by = stored_actor(actor)
    try:
        with transaction.atomic():
            run.save(force_insert=True)
            record(actor, verb, f"endpoint/{name}", {"run": str(run.pk)})
            task.nudge(str(run.pk))
    except IntegrityError:
        kind = "proof" if isinstance(run, ProofRun) else "calibration"
        text = f"A {kind} of {name} is already running."
        raise ConflictError(f"{kind}_running", text, "Wait for its result.") from None


def get_serving_endpoint(actor: Any, name: str) -> Endpoint:
    endpoint = selectors.get(name, viewer=actor)
    require(actor, "operator", of=endpoint)
    if endpoint.shown_phase not in ("Ready", "Degraded") or not endpoint.status.url:
        raise ConflictError(
            "not_serving",
            f"{name} is {endpoint.shown_phase}: there is nothing to measure.",
            "Wait until it is Ready.",
        )
    return endpoint


def fail_abandoned_runs() -> None:
    silent_since = timezone.now() - timedelta(seconds=ABANDONED_S)
    text = "The background worker stopped before the end. Start it again."
    ProofRun.finish(ProofRun.objects.filter(touched_at__lt=silent_since), RunState.FAILED, text)
    Calibration.finish(
        Calibration.objects.filter(touched_at__lt=silent_since), RunState.FAILED, text
    )
