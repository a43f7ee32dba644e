"""Pages of an endpoint's strategy canary. An operator starts, stops and promotes it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from console.web.forms import submit
from console.web.serializer_form import SerializerForm
from dashboards.insight.canary import report
from endpoints.models import Endpoint
from endpoints.pages.head import find_endpoint
from endpoints.pages.routing.views import build_shell
from endpoints.router.canary import actions, selectors
from endpoints.router.canary.actions import CanaryStartSerializer
from endpoints.spec.fields import STRATEGIES

PAGE = "dashboards:canary"
_MEANINGS = {
    "collecting": "Collecting",
    "no_difference": "No difference so far",
    "better": "Candidate is better",
    "worse": "Candidate is worse",
}
_LEVELS = {"better": "green", "worse": "red"}


class CanaryForm(SerializerForm):
    """The share is typed in percent."""

    def __init__(self, data: Any, control: str) -> None:
        super().__init__(CanaryStartSerializer(), data)
        strategy, share = self.fields["strategy"], self.fields["share"]
        assert isinstance(strategy, forms.ChoiceField)
        strategy.choices = [(name, name) for name in STRATEGIES if name != control]
        share.label, share.initial = "Share of sessions (%)", "10"
        share.help_text = "1 to 99. All requests of a session go by the same strategy."
        share.widget.attrs |= {"min": "1", "max": "99"}

    def typed(self) -> dict[str, Any]:
        values = super().typed()
        with suppress(ValueError):  # refused by the action
            values["share"] = float(values["share"].removesuffix("%")) / 100
        return values


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def page(request: HttpRequest, name: str) -> HttpResponseBase:
    endpoint = find_endpoint(name)
    if request.method == "POST":
        return _start(request, endpoint)
    return _show(request, endpoint)


def _form(found: Endpoint, data: Any = None) -> CanaryForm:
    return CanaryForm(data, found.parsed.routing.effective_strategy)


def _show(
    request: HttpRequest, found: Endpoint, form: CanaryForm | None = None, status: int = 200
) -> HttpResponse:
    latest = selectors.latest(found)
    result = None if latest is None else selectors.result(latest)
    strategies = {} if latest is None else selectors.strategies(latest)
    context: dict[str, Any] = {
        **build_shell(found),
        "canary": latest,
        "form": form or _form(found),
        "verdict": _MEANINGS.get(latest.verdict, "") if latest else "",
        "verdict_level": _LEVELS.get(latest.verdict, "secondary") if latest else "",
        "arms": [(name, strategies[name], arm) for name, arm in result.arms.items()]
        if result
        else [],
        "rows": report.measure_rows(result) if result else [],
        "charts": report.charts(latest.history, strategies) if latest else [],
        "version": f"{latest.pk}-{len(latest.history)}-{latest.collected_at}" if latest else "",
        "earlier": [
            canary for canary in selectors.earlier(found) if latest and canary.pk != latest.pk
        ],
    }
    if status != 200:
        return render(request, "canary/page.html", context, status=status)
    return responses.render(request, "canary/page.html", "canary/htmx/state.html", context)


@role_required("operator")
def _start(request: HttpRequest, found: Endpoint) -> HttpResponseBase:
    form = _form(found, request.POST)

    def done(_made: Any) -> HttpResponse:
        text = "The canary is being started. Routers reload without a restart."
        messages.success(request, text)
        return redirect(PAGE, found.name)

    return submit(
        request,
        form,
        lambda: actions.start(request.user, found.name, form.typed()),
        lambda status: _show(request, found, form, status),
        done,
    )


@never_cache
@require_safe
def figures(_request: HttpRequest, name: str) -> JsonResponse:
    """Return the figures of the page's charts."""
    latest = selectors.latest(find_endpoint(name))
    if latest is None:
        return JsonResponse({"charts": []})
    drawn = report.charts(latest.history, selectors.strategies(latest))
    return JsonResponse({"charts": [chart.data() for chart in drawn]})


@require_POST
@role_required("operator")
def stop(request: HttpRequest, name: str) -> HttpResponseBase:
    find_endpoint(name)
    try:
        actions.stop(request.user, name)
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(request, "The canary was stopped. All sessions go by the same strategy.")
    return redirect(PAGE, name)


@require_POST
@role_required("operator")
def promote(request: HttpRequest, name: str) -> HttpResponseBase:
    find_endpoint(name)
    try:
        made = actions.promote(request.user, name)
    except Refused as refused:
        messages.error(request, str(refused))
    else:
        messages.success(
            request, f"Strategy {made.strategy} was promoted as revision {made.revision}."
        )
    return redirect(PAGE, name)
