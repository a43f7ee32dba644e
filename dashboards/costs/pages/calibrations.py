"""Calibration page: prefill time per prompt token of each endpoint, runs and switches."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBadRequest, HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST

from console.accounts.gate import role_required
from console.accounts.permissions import Somebody, allows, require
from console.core.errors import Refused
from console.web import responses
from dashboards import actions, calibration_switches
from dashboards.calibration_guard import DEADLINE_S, MAX_TOKENS
from dashboards.calibration_switches import read_switches
from dashboards.costs.formulas.price_terms import parse_stored_needs
from dashboards.costs.prices.factors import KnownSlope, known
from dashboards.costs.reports.endpoints import latest_runs
from dashboards.models import Calibration
from endpoints import selectors
from endpoints.models import Endpoint
from endpoints.refusals import RefusalError

ROWS_A_PAGE = 50
_CHOICES = {"on": True, "off": False, "default": None}
PAGE = "dashboards:calibrations"


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def calibrations(request: HttpRequest) -> HttpResponseBase:
    """Show all endpoints; a POST sets the default of the automatic calibration."""
    if request.method == "POST":
        require(request.user, "operator")
        enabled = request.POST.get("auto") == "on"
        calibration_switches.set_default(request.user, enabled)
        messages.success(request, f"Automatic calibration is {'on' if enabled else 'off'}.")
        return redirect(PAGE)
    return _page(request)


def _page(request: HttpRequest) -> HttpResponse:
    actions.fail_abandoned_runs()
    rows = list_calibrations(request.user)
    context = {
        "page": Paginator(rows, ROWS_A_PAGE).get_page(request.GET.get("page")),
        "measuring": any(row.latest is not None and row.latest.live for row in rows),
        "default_on": read_switches().default,
        "deadline_s": DEADLINE_S,
        "max_tokens": MAX_TOKENS,
    }
    return responses.render(
        request, "money/calibrations.html", "money/inc/calibrations.html", context
    )


@require_POST
@role_required("operator")
def calibrate(request: HttpRequest, name: str) -> HttpResponseBase:
    try:
        actions.start_calibration(request.user, name)
    except RefusalError as error:
        messages.error(request, str(error))
    else:
        messages.success(request, f"Calibration of {name} started.")
    return redirect(PAGE)


@require_POST
@role_required("operator")
def switch(request: HttpRequest, name: str) -> HttpResponseBase:
    typed = request.POST.get("auto", "")
    if typed not in _CHOICES:
        return HttpResponseBadRequest("Choose on, off or default.")
    try:
        effective = calibration_switches.set_endpoint(request.user, name, _CHOICES[typed])
    except Refused as error:
        messages.error(request, str(error))
    else:
        text = f"Automatic calibration of {name} is {'on' if effective else 'off'}."
        messages.success(request, text)
    return redirect(PAGE)


@dataclass(frozen=True, slots=True)
class CalibrationRow:
    """Row of the calibrations page. `own`: the endpoint's own switch, None for the default;
    `enabled`: the effective one.
    """

    endpoint: Endpoint
    known: KnownSlope | None
    latest: Calibration | None
    own: bool | None
    enabled: bool
    may_operate: bool
    lent_by: str = ""

    @property
    def stale(self) -> bool:
        """Return whether the workers' settings changed since the calibration."""
        if self.known is None or self.known.lent:
            return False
        return self.known.calibration.settings_hash != self.endpoint.status.worker_hash


def list_calibrations(viewer: Somebody) -> list[CalibrationRow]:
    """Return the visible endpoints by name; the number of queries is constant."""
    listed = [(row, parse_stored_needs(row.spec)) for row in selectors.endpoints(viewer)]
    slopes = known((row.pk, needs) for row, needs in listed)
    latest, switches = latest_runs(), read_switches()
    names = {row.name for row, _ in listed}
    rows = []
    for endpoint, _ in listed:
        slope = slopes.get(endpoint.pk)
        source = slope.calibration.endpoint.name if slope and slope.lent else ""
        rows.append(
            CalibrationRow(
                endpoint,
                slope,
                latest.get(endpoint.pk),
                switches.of.get(endpoint.pk),
                switches.enabled(endpoint.pk),
                allows(viewer, "operator", of=endpoint),
                source if source in names else "",
            )
        )
    return rows
