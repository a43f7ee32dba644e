"""Price entry in place: one field per unpriced instance type, with list prices to choose from."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_safe

from console.accounts.gate import role_required
from console.catalogue.selectors import instances_by_name
from console.core.errors import Refused
from console.core.money import format_usd_hour
from dashboards.costs.formulas.price_terms import label, parse_stored_needs
from dashboards.costs.prices.entry import MissingPrice, list_missing, make_missing, save_price
from endpoints import selectors

COSTS = "dashboards:costs"


@never_cache
@require_safe
def prices(request: HttpRequest) -> HttpResponse:
    """Render the missing prices: empty if there are none, and outside htmx a page."""
    context = {"unpriced": _missing(request), "back": _came_from(request)}
    if request.headers.get("HX-Request") == "true":
        return render(request, "money/inc/prices.html", context)
    return render(request, "money/price.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def price(request: HttpRequest, machine: str) -> HttpResponseBase:
    missing = make_missing(machine)
    if missing is None:
        raise Http404
    context: dict[str, Any] = {"unpriced": [missing], "back": _safe(request, _posted(request))}
    if request.method != "POST":
        return render(request, "money/price.html", context)
    typed, offer = str(request.POST.get("usd_hour", "")), str(request.POST.get("offer", ""))
    try:
        made = save_price(request.user, machine, typed, offer)
    except Refused as error:
        texts = [f"{problem.message} {problem.remedy}" for problem in error.errors]
        context |= {"problem": " ".join(texts), "typed": typed}
        return render(request, "money/price.html", context, status=error.status_code)
    amount = format_usd_hour(made.price_usd_hour)
    text = f"{label(machine)}: {amount} from {made.price_date} on. All costs use this price now."
    messages.success(request, text)
    return redirect(_safe(request, _posted(request)) or COSTS)


def _missing(request: HttpRequest) -> list[MissingPrice]:
    viewer: Any = request.user
    specs = selectors.endpoints(viewer).values_list("name", "spec")
    needs = [(name, parse_stored_needs(spec)) for name, spec in specs]
    return list_missing(needs, instances_by_name())


def _posted(request: HttpRequest) -> str:
    return str(request.POST.get("back", ""))


def _came_from(request: HttpRequest) -> str:
    """Return the path of the page that loads the part."""
    parts = urlsplit(request.headers.get("HX-Current-URL", ""))
    return _safe(request, f"{parts.path}?{parts.query}" if parts.query else parts.path)


def _safe(request: HttpRequest, path: str) -> str:
    hosts = {request.get_host()}
    ours = path.startswith("/") and url_has_allowed_host_and_scheme(path, hosts)
    return path if ours else ""
