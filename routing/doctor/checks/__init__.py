"""All checks in diagnostic order: router, workers, events, tokens, requests."""

from __future__ import annotations

from routing.doctor.checks import availability, events, fleet, requests, tokens
from routing.doctor.findings import DoctorCheck

CHECKS: tuple[DoctorCheck, ...] = (
    *availability.CHECKS,
    *fleet.CHECKS,
    *events.CHECKS,
    *tokens.CHECKS,
    *requests.CHECKS,
)
BY_CODE = {check.code: check for check in CHECKS}
