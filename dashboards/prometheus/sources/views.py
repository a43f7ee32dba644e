"""Metrics sources pages: origin of metrics, contents of each source, admin changes."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web.confirm_by_name import confirm_by_name
from dashboards.prometheus.config import scrape_config
from dashboards.prometheus.sources import actions, selectors
from dashboards.prometheus.sources.forms import SourceForm
from dashboards.prometheus.sources.models import MetricsSource


@require_safe
@role_required("viewer")
def sources(request: HttpRequest) -> HttpResponse:
    rows = list(selectors.rows())
    replaced = next((row for row in rows if row.enabled and row.cluster is None), None)
    context = {
        "rows": rows,
        "own": selectors.summarize_own(),
        "replaced": replaced,
        "snippet": scrape_config.scrape_config(_console(request)),
        "credential": scrape_config.CREDENTIAL_PLACE,
        "token_file": settings.EMBERLINE.targets_token_file,
        "retention": settings.EMBERLINE.prometheus_retention,
    }
    return render(request, "metrics_sources/list.html", context)


@require_safe
@role_required("viewer")
def source(request: HttpRequest, name: str) -> HttpResponse:
    row = _found(name)
    context = {
        "row": row,
        "login": selectors.LOGINS[row.auth],
        "snippet": scrape_config.scrape_config(_console(request), row.name),
        "credential": scrape_config.CREDENTIAL_PLACE,
        "token_file": settings.EMBERLINE.targets_token_file,
    }
    return render(request, "metrics_sources/source.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def add(request: HttpRequest) -> HttpResponseBase:
    if request.method != "POST":
        return _form(request, SourceForm(), None, 200)
    form = SourceForm(request.POST)
    try:
        made = actions.add(_user(request), request.POST.get("name", "").strip(), form.typed())
        made = actions.test(_user(request), made.name)
    except Refused as error:
        form.refuse(error.errors)
        return _form(request, form, None, error.status_code)
    messages.success(request, f"Source {made.name} is added and was asked what it has.")
    return redirect("metrics_sources:source", made.name)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def edit(request: HttpRequest, name: str) -> HttpResponseBase:
    found = _found(name)
    if request.method != "POST":
        return _form(request, SourceForm(source=found), found, 200)
    form = SourceForm(request.POST, source=found)
    try:
        actions.change(_user(request), name, form.typed())
        actions.test(_user(request), name)
    except Refused as error:
        form.refuse(error.errors)
        return _form(request, form, found, error.status_code)
    messages.success(request, f"Source {name} is changed and was asked what it has.")
    return redirect("metrics_sources:source", name)


def _form(
    request: HttpRequest, form: SourceForm, found: MetricsSource | None, status: int
) -> HttpResponse:
    context = {"form": form, "source": found, "folder": settings.EMBERLINE.metrics_secrets}
    return render(request, "metrics_sources/form.html", context, status=status)


@require_POST
@role_required("operator")
def test(request: HttpRequest, name: str) -> HttpResponse:
    actions.test(_user(request), _found(name).name)
    messages.info(request, f"Source {name} was asked.")
    return redirect("metrics_sources:source", name)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    found = _found(name)
    return confirm_by_name(
        request,
        name,
        lambda: actions.remove(_user(request), name),
        page=("metrics_sources/remove.html", {"row": found}),
        words=("remove", "removed"),
        done=(f"Source {name} is forgotten, with its secrets.", "metrics_sources:list"),
    )


def _found(name: str) -> MetricsSource:
    found = selectors.get(name)
    if found is None:
        raise Http404
    return found


def _console(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.get_host()}"


def _user(request: HttpRequest) -> Any:
    return request.user
