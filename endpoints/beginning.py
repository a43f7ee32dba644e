"""What is known of an endpoint before anybody has looked at it."""

from __future__ import annotations

from typing import Any

from django.utils import timezone

from endpoints.choices import Reason, Step, StepState


def first_status() -> dict[str, Any]:
    now = timezone.now()
    step = {
        "code": Step.ACCEPTED,
        "state": StepState.ACTIVE,
        "started_at": now.isoformat(),
        "finished_at": "",
        "message": "",
    }
    return {
        "reason": Reason.ACCEPTED,
        "message": "Waiting for its first look.",
        "steps": [step],
    }
