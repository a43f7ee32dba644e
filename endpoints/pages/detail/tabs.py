"""Tabs of an endpoint: workers, cache, configuration, revisions, access and settings. Read only."""

from __future__ import annotations

from functools import partial

from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import render
from django.views.decorators.http import require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import allows
from console.web import responses
from endpoints import abandonment, manifest_actions, selectors, teams
from endpoints.choices import Severity
from endpoints.manifests import documents
from endpoints.models import Endpoint
from endpoints.owners import owner_of
from endpoints.pages.detail.configuration import form_values
from endpoints.pages.detail.revisions import (
    SERVING,
    WANTED,
    Comparison,
    RevisionSide,
    compare_sides,
    find_side,
    page_of_revisions,
    revision_rows,
)
from endpoints.pages.detail.views import render_part, run_and_redirect
from endpoints.pages.editor.feedback import command_lines
from endpoints.pages.head import SETTLED_POLL_S, find_endpoint, head_context, poll_s
from endpoints.placement import cache_tiers
from endpoints.placement.preview import preview
from endpoints.refusals import NotFoundError


@require_POST
@role_required("operator")
def move(request: HttpRequest, name: str) -> HttpResponseBase:
    slug = request.POST.get("team", "")
    text = f"{name}: moved to {f'team {slug}' if slug else 'no team'}."
    return run_and_redirect(request, name, text, teams.move, slug)


EVENTS_A_PAGE = 50
LONGEST = 200
REVISION_CHOICES = 100
"""Revisions offered for selection; a URL may name any."""


@require_safe
def head(request: HttpRequest, name: str) -> HttpResponse:
    brief = "brief" in request.GET
    context = partial(head_context, brief=brief, query=True)
    return render_part(request, name, "endpoints/htmx/head.html", context)


@require_safe
def workers(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    context = {
        **selectors.cluster_context(endpoint),
        "endpoint": endpoint,
        "status": endpoint.status,
        "workers": list(selectors.workers(endpoint)),
        "poll_s": poll_s(endpoint),
    }
    return responses.render(
        request, "endpoints/workers.html", "endpoints/htmx/workers.html", context
    )


@require_safe
def cache(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    l2 = endpoint.parsed.cache.l2
    context = {
        "endpoint": endpoint,
        "spec": endpoint.parsed,
        "part": endpoint.status.parts.get("l2") if l2.enabled else None,
        "tier": cache_tiers.tier_context(l2.tier) if endpoint.parsed.needs_cache_tier else None,
        "poll_s": poll_s(endpoint),
    }
    return responses.render(request, "endpoints/cache.html", "endpoints/htmx/cache.html", context)


@require_safe
def events(request: HttpRequest, name: str) -> HttpResponse:
    """List events, filtered by the query string; unknown values are ignored."""
    endpoint = find_endpoint(name)
    kinds = selectors.event_kinds(endpoint)
    severity, kind = request.GET.get("severity", ""), request.GET.get("kind", "")
    chosen = {
        "severity": severity if severity in set(Severity) else "",
        "kind": kind if kind in kinds else "",
        "text": request.GET.get("q", "").strip()[:LONGEST],
    }
    rows = selectors.events(endpoint, **chosen)
    page = Paginator(rows, EVENTS_A_PAGE).get_page(request.GET.get("page"))
    context = {
        "endpoint": endpoint,
        "page": page,
        "events": page.object_list,
        "kinds": kinds,
        "chosen": chosen,
        "narrowed": any(chosen.values()),
        "poll_s": SETTLED_POLL_S,
    }
    return responses.render(request, "endpoints/events.html", "endpoints/htmx/events.html", context)


@require_safe
def configuration(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    previewed = preview(endpoint.parsed)
    context = {
        "endpoint": endpoint,
        "groups": form_values(endpoint.parsed),
        "yaml": documents.to_yaml(manifest_actions.export_endpoint(name)),
        "shown": previewed,
        "command": command_lines(previewed.argv),
        "owner": owner_of(name),
        "pending": _pending_comparison(endpoint),
    }
    return render(request, "endpoints/configuration.html", context)


@require_safe
def compare(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    old, new = _sides(request, endpoint)
    numbers = selectors.revisions(endpoint).values_list("number", flat=True)
    context = {
        "endpoint": endpoint,
        "numbers": list(numbers[:REVISION_CHOICES]),
        "old": old,
        "new": new,
        "compared": compare_sides(old, new),
    }
    return render(request, "endpoints/compare.html", context)


@require_safe
def revisions(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    page = page_of_revisions(endpoint, request.GET.get("page"))
    context = {"endpoint": endpoint, "page": page, "revisions": revision_rows(endpoint, page)}
    return render(request, "endpoints/revisions.html", context)


@require_safe
def revision(request: HttpRequest, name: str, number: int) -> HttpResponse:
    endpoint = find_endpoint(name)
    there = _side(endpoint, str(number))
    context = {
        "endpoint": endpoint,
        "there": there,
        "owner": owner_of(name),
        "compared": compare_sides(find_side(endpoint, WANTED), there),
    }
    return render(request, "endpoints/revision.html", context)


@require_safe
def settings(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    on_cluster = endpoint.parsed.on_cluster
    context = {
        "endpoint": endpoint,
        "spec": endpoint.parsed,
        "owner": owner_of(name),
        # Objects that abandoning would leave in the cluster.
        "left": abandonment.remaining_objects(endpoint) if on_cluster else None,
        "team_choices": teams.choices(request.user),
        "team_nobody": allows(request.user, "operator"),
        "team_now": endpoint.team.slug if endpoint.team else "",
    }
    return render(request, "endpoints/settings.html", context)


def _pending_comparison(endpoint: Endpoint) -> Comparison | None:
    """Return the changes not serving yet, None without any."""
    if not endpoint.status.served_once:
        return None
    try:
        found_ = compare_sides(find_side(endpoint, SERVING), find_side(endpoint, WANTED))
    except NotFoundError:  # older than the stored revisions
        return None
    return found_ if found_.rows else None


def _sides(request: HttpRequest, endpoint: Endpoint) -> tuple[RevisionSide, RevisionSide]:
    new = _side(endpoint, request.GET.get("new") or WANTED)
    chosen = request.GET.get("old")
    if chosen:
        return _side(endpoint, chosen), new
    before = selectors.revisions(endpoint).filter(number__lt=new.number).first()
    return _side(endpoint, str(before.number)) if before else new, new


def _side(endpoint: Endpoint, key: str) -> RevisionSide:
    try:
        return find_side(endpoint, key)
    except NotFoundError as error:
        raise Http404(str(error)) from None
