"""Start, stop and promotion of a strategy canary.

Permission, validation, then one transaction with its audit entry. A promotion is a change of the
endpoint's strategy: a revision, which can be rolled back.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone
from rest_framework import serializers

from console.accounts.credentials import stored_actor
from console.api.bodies import read_body
from console.audit.record import record
from console.core.errors import Problem, Refused
from console.web.forms import PLAIN_INPUT
from endpoints import actions as endpoint_actions
from endpoints import teams
from endpoints.models import Endpoint
from endpoints.refusals import LONGEST_NOTE, parse_note
from endpoints.router.models import Canary, CanaryState
from endpoints.spec.fields import STRATEGIES
from routing.engine.config import ConfigError
from routing.engine.config.canary import CanaryFields, parse_canary
from routing.engine.config.validation import convert

_MEMORY_BLOCKS = 65_536


class CanaryStartSerializer(serializers.Serializer[Any]):
    strategy = serializers.ChoiceField(
        STRATEGIES, label="Candidate strategy", help_text="Gets a share of the sessions."
    )
    share = serializers.FloatField(
        required=False, min_value=0.01, max_value=0.99, help_text="Of the sessions (0.1)."
    )
    session_key = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=100,
        help_text="header:NAME, cookie:NAME or body:FIELD; empty: that of the endpoint. Requests "
        "without a session ID: the first messages of the prompt.",
        style=PLAIN_INPUT,
    )
    settle_s = serializers.FloatField(
        required=False,
        initial=60,
        min_value=0,
        max_value=3600,
        label="Session end after (s)",
        help_text="Time without a request.",
    )
    note = serializers.CharField(required=False, allow_blank=True, max_length=LONGEST_NOTE)


def start(actor: Any, name: str, data: Any) -> Canary:
    """Start a canary; at most one runs per endpoint."""
    teams.require_change(actor, name)
    values = read_body(CanaryStartSerializer, data)
    why = parse_note(values.pop("note", ""))
    with transaction.atomic():
        endpoint = endpoint_actions.lock_changeable(actor, name)
        endpoint_actions.require_not_deleting(endpoint)
        endpoint_actions.require_owner(actor, endpoint)
        if Canary.objects.filter(endpoint=endpoint, state=CanaryState.RUNNING).exists():
            raise _already_running()
        control = endpoint.parsed.routing.effective_strategy
        canary_fields = _check(values, control)
        try:
            with transaction.atomic():
                canary = Canary.objects.create(
                    endpoint=endpoint,
                    control=control,
                    strategy=canary_fields.strategy,
                    share=canary_fields.share,
                    session_key=canary_fields.session_key,
                    settle_s=canary_fields.settle_s,
                    started_by=stored_actor(actor),
                )
        except IntegrityError:
            raise _already_running() from None
        changes = {
            "canary.strategy": [control, canary.strategy],
            "canary.share": [None, canary.share],
        }
        record(stored_actor(actor), "canary.start", _target(endpoint), changes, why)
        endpoint_actions.nudge(endpoint)
    return canary


def stop(actor: Any, name: str, note: Any = "") -> Canary:
    """Stop the running canary: all sessions go by the endpoint's strategy again."""
    teams.require_change(actor, name)
    why = parse_note(note)
    with transaction.atomic():
        endpoint = endpoint_actions.lock_changeable(actor, name)
        canary = _lock_running(endpoint)
        by = stored_actor(actor)
        end(canary, CanaryState.STOPPED, f"Stopped by {by.get_username() if by else 'system'}.")
        record(by, "canary.stop", _target(endpoint), _ended(canary), why)
    return canary


def promote(actor: Any, name: str, note: Any = "") -> Canary:
    """Make the candidate the endpoint's strategy, by a revision."""
    teams.require_change(actor, name)
    why = parse_note(note)
    with transaction.atomic():
        endpoint = endpoint_actions.lock_changeable(actor, name)
        canary = _lock_running(endpoint)
        changes: dict[str, Any] = {"enabled": True, "strategy": canary.strategy}
        if canary.session_key:
            changes["session_key"] = canary.session_key
        verdict = f"Canary: {canary.message}" if canary.message else "Canary without a result."
        changed = endpoint_actions.patch(
            actor, name, {"routing": changes}, verb="canary.promote", note=why or verdict
        )
        canary.revision = changed.generation
        end(canary, CanaryState.PROMOTED, f"Promoted as revision {changed.generation}.")
        record(stored_actor(actor), "canary.promote", _target(endpoint), _ended(canary), why)
    return canary


def end(canary: Canary, state: CanaryState, reason: str) -> None:
    """End a locked canary and let the routers drop it."""
    canary.state = state
    canary.ended_at = timezone.now()
    canary.ended_reason = reason[:300]
    canary.save(update_fields=["state", "ended_at", "ended_reason", "revision"])
    endpoint_actions.nudge(canary.endpoint)


def stop_automatically(canary: Canary, reason: str) -> None:
    """Stop a locked canary as the console itself."""
    end(canary, CanaryState.STOPPED, reason)
    record(None, "canary.stop", _target(canary.endpoint), _ended(canary), reason)


def propose(canary: Canary) -> None:
    """Record that the candidate is better; a person decides."""
    changes = {"canary.verdict": [None, canary.message]}
    record(None, "canary.propose", _target(canary.endpoint), changes)


def _lock_running(endpoint: Endpoint) -> Canary:
    rows = Canary.objects.select_for_update(no_key=True).filter(endpoint=endpoint)
    canary = rows.filter(state=CanaryState.RUNNING).first()
    if canary is None:
        message, remedy = "No canary is running.", "Start one first."
        raise Refused(Problem("", None, message, remedy, "no_canary"), status_code=409)
    return canary


def _check(fields: Mapping[str, Any], control: str) -> CanaryFields:
    """Validate with the router's own parser."""
    try:
        canary_fields: CanaryFields = convert({"id": "new", **fields}, CanaryFields, "canary")
        parse_canary(canary_fields, control, _MEMORY_BLOCKS)
    except ConfigError as error:
        field = error.field.removeprefix("canary.")
        message = f"{error.message[0].upper()}{error.message[1:]}."
        problem = Problem(field, error.value, message, error.remedy, "invalid")
        raise Refused(problem) from None
    return canary_fields


def _already_running() -> Refused:
    message = "A canary is already running on this endpoint."
    return Refused(
        Problem("", None, message, "Stop or promote it first.", "canary_running"), status_code=409
    )


def _ended(canary: Canary) -> dict[str, list[Any]]:
    return {
        "canary.state": [str(CanaryState.RUNNING), str(canary.state)],
        "canary.strategy": [canary.strategy, None],
    }


def _target(endpoint: Endpoint) -> str:
    return endpoint_actions.target_of(endpoint)
