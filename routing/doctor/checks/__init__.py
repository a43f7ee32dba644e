"""All checks in diagnostic order: routers, workers, events, tokens, requests."""

from __future__ import annotations

from routing.doctor.checks import availability, events, fleet, requests, routers, tokens
from routing.doctor.findings import DoctorCheck

CHECKS = tuple(
    check
    for module in (availability, routers, fleet, events, tokens, requests)
    for check in vars(module).values()
    if isinstance(check, DoctorCheck)
)
