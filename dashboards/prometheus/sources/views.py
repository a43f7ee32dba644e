"""Metrics sources pages: origin of metrics, contents of each source, admin changes."""

from __future__ import annotations

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import actor_of
from console.web.confirm_by_name import confirm_by_name
from console.web.forms import submit
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
        "snippet": scrape_config.scrape_config(_console(request), row.name),
        "credential": scrape_config.CREDENTIAL_PLACE,
        "token_file": settings.EMBERLINE.targets_token_file,
    }
    return render(request, "metrics_sources/source.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def edit(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Add a source, or change the one of that name; then test it."""
    source, user = _found(name) if name else None, actor_of(request)
    form = SourceForm(request.POST if request.method == "POST" else None, source=source)

    def act() -> MetricsSource:
        if source is not None:
            made = actions.change(user, name, form.typed())
        else:
            made = actions.add(user, request.POST.get("name", "").strip(), form.typed())
        return actions.test(user, made.name)

    def show(status: int) -> HttpResponse:
        context = {"form": form, "source": source, "folder": settings.EMBERLINE.metrics_secrets}
        return render(request, "metrics_sources/form.html", context, status=status)

    def done(made: MetricsSource) -> HttpResponse:
        change = "changed" if source else "added"
        messages.success(request, f"Metrics source {made.name} {change} and tested.")
        return redirect("metrics_sources:source", made.name)

    return submit(request, form, act, show, done)


@require_POST
@role_required("operator")
def test(request: HttpRequest, name: str) -> HttpResponse:
    actions.test(actor_of(request), _found(name).name)
    messages.info(request, f"Metrics source {name} tested.")
    return redirect("metrics_sources:source", name)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    source = _found(name)
    return confirm_by_name(
        request,
        name,
        lambda: actions.remove(actor_of(request), name),
        page=("metrics_sources/remove.html", {"row": source}),
        words=("remove", "removed"),
        done=(f"Metrics source {name} and its secrets removed.", "metrics_sources:list"),
    )


def _found(name: str) -> MetricsSource:
    return get_object_or_404(selectors.rows(), name=name)


def _console(request: HttpRequest) -> str:
    return f"{request.scheme}://{request.get_host()}"
