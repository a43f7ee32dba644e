"""Cache tier pages: list, detail, create, change with a live preview, flush and delete."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from cachetier import actions, selectors
from cachetier.models import CacheTier
from cachetier.pages.forms import EFFECT_LABELS, TierForm, format_value
from cachetier.tier import spec
from cachetier.tier.spec import BY_NAME, Effect, Problem, Refused, TierSpec
from console.accounts.gate import role_required
from console.accounts.permissions import actor_of
from console.core.errors import STALE
from console.web import responses
from console.web.confirm_by_name import confirm_by_name
from console.web.forms import submit

_GENERATION = re.compile(r"[0-9]{1,18}")
_EFFECT_TEXTS = {
    Effect.LIVE: "Applied without a restart; cached data that still fits is kept.",
    Effect.NODES: "Rolling restart of the nodes; cached data in memory is lost.",
    Effect.WORKERS: "Rolling restart of the workers of every endpoint that uses the tier.",
}


@require_safe
def tiers(request: HttpRequest) -> HttpResponse:
    context = {"rows": selectors.summaries(request.user)}
    return responses.render(request, "cachetier/tiers.html", "cachetier/htmx/tiers.html", context)


@require_safe
def tier(request: HttpRequest, name: str) -> HttpResponse:
    tier = selectors.get_tier(name)
    if tier is None:
        if responses.wants_partial(request):  # deleted while the page was open
            messages.info(request, f"Cache tier {name} was deleted.")
            return HttpResponse(headers={"HX-Redirect": reverse("cachetier:tiers")})
        raise Http404
    context = {"row": selectors.detail(tier, request.user), "form": TierForm(spec=tier.spec)}
    return responses.render(request, "cachetier/tier.html", "cachetier/htmx/tier.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def new(request: HttpRequest) -> HttpResponseBase:
    clusters = selectors.spare_capacity().clusters
    form = TierForm(request.POST if request.method == "POST" else None, clusters=clusters)

    def act() -> CacheTier:
        name = request.POST.get("name", "").strip()
        return actions.create(actor_of(request), name, form.typed())

    def done(made: CacheTier) -> HttpResponse:
        messages.success(request, f"Cache tier {made.name} created. Its nodes are starting.")
        return redirect("cachetier:tier", made.name)

    return submit(request, form, act, partial(_render_form, request, form, None), done)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit(request: HttpRequest, name: str) -> HttpResponseBase:
    tier = selectors.get_tier_or_404(name)
    typed = request.POST if request.method == "POST" else None
    form = TierForm(typed, spec=tier.spec, filled=request.GET.dict())
    if request.method == "POST":
        try:
            generation = request.POST.get("generation", "")
            expected = int(generation) if _GENERATION.fullmatch(generation) else None
            actions.change(actor_of(request), name, form.typed(), expected_generation=expected)
        except Refused as error:
            if any(problem.code == STALE for problem in error.errors):
                return _render_conflict(request, form, selectors.get_tier_or_404(name))
            form.refuse(error.errors)
            return _render_form(request, form, tier, error.status_code)
        messages.success(request, f"Changes to cache tier {name} are being applied.")
        return redirect("cachetier:tier", name)
    return _render_form(request, form, tier, 200)


def _render_conflict(request: HttpRequest, form: TierForm, found: CacheTier) -> HttpResponse:
    """Show the submitted form with the current spec after a concurrent change."""
    try:
        new_spec = spec.change_spec(found.spec, form.typed(), selectors.spare_capacity())
    except Refused as error:
        form.refuse(error.errors)
        new_spec = found.spec
    rows = list_changed_rows(spec.list_changes(found.spec, new_spec))
    return _render_form(request, form, found, 409, conflict=True, differences=rows)


def _render_form(
    request: HttpRequest, form: TierForm, found: CacheTier | None, status: int, **more: Any
) -> HttpResponse:
    context = {"form": form, "tier": found, "room": selectors.spare_capacity(), **more}
    context["generation"] = found.generation if found else ""
    if form.is_bound and status != 409 and found:
        context["generation"] = request.POST.get("generation", "")
    return render(request, "cachetier/form.html", context, status=status)


@require_POST
@role_required("operator")
def flush(request: HttpRequest, name: str) -> HttpResponseBase:
    """Flush a namespace after it was typed for confirmation ("all" for everything)."""
    tier = selectors.get_tier_or_404(name)
    namespace = request.POST.get("namespace", "")
    if request.POST.get("typed", "").strip() != (namespace or tier.name):
        messages.error(request, f"Nothing was flushed. Type {namespace or tier.name} to confirm.")
        return redirect("cachetier:tier", name)
    try:
        dropped = actions.flush(actor_of(request), name, namespace)
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(
            request,
            f"Flushed {dropped} value{'' if dropped == 1 else 's'}. Workers compute them again.",
        )
    return redirect("cachetier:tier", name)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def delete(request: HttpRequest, name: str) -> HttpResponseBase:
    tier = selectors.get_tier_or_404(name)
    return confirm_by_name(
        request,
        name,
        lambda: actions.delete(actor_of(request), name),
        page=("cachetier/delete.html", {"row": selectors.detail(tier, request.user)}),
        words=("delete", "deleted"),
        done=(f"Cache tier {name} is being deleted.", "cachetier:tiers"),
    )


@require_POST
@role_required("operator")
def preview_create(request: HttpRequest) -> HttpResponse:
    room = selectors.spare_capacity()
    form = TierForm(request.POST, clusters=room.clusters)
    name = request.POST.get("name", "").strip()
    problems = _render_errors(lambda: spec.check_name(name))
    if not problems and selectors.get_tier(name) is not None:
        problems = (spec.name_taken(name),)
    problems += _render_errors(lambda: spec.create_spec(form.typed(), room))
    return _render_preview(request, form, problems, None, {})


@require_POST
@role_required("operator")
def preview_change(request: HttpRequest, name: str) -> HttpResponse:
    tier = selectors.get_tier_or_404(name)
    form = TierForm(request.POST, spec=tier.spec)
    tier_specs: list[TierSpec] = []
    problems = _render_errors(
        lambda: tier_specs.append(
            spec.change_spec(tier.spec, form.typed(), selectors.spare_capacity())
        )
    )
    changes = spec.list_changes(tier.spec, tier_specs[0]) if tier_specs else {}
    return _render_preview(request, form, problems, tier, changes)


def _render_errors(judge: Any) -> tuple[Problem, ...]:
    try:
        judge()
    except Refused as refused:
        return refused.errors
    return ()


def _render_preview(
    request: HttpRequest,
    form: TierForm,
    problems: tuple[Problem, ...],
    found: CacheTier | None,
    changes: dict[str, list[Any]],
) -> HttpResponse:
    touched = request.POST.get("touched", "").split()
    context = {
        "tier": found,
        "problems": [
            {
                "problem": problem,
                "label": form.fields[problem.field].label if problem.field in form.fields else "",
            }
            for problem in problems
        ],
        "slots": [
            {
                **row,
                "errors": [
                    problem
                    for problem in problems
                    if problem.field == row["field"].name and problem.field in touched
                ],
            }
            for row in form.rows()
        ],
        "changes": list_changed_rows(changes),
        "does": [
            _EFFECT_TEXTS[effect]
            for effect in _EFFECT_TEXTS
            if effect in spec.list_effects(changes)
        ],
        "moved_on": found is not None
        and request.POST.get("generation", str(found.generation)) != str(found.generation),
    }
    return render(request, "cachetier/htmx/look.html", context)


def list_changed_rows(changes: dict[str, list[Any]]) -> list[dict[str, str]]:
    return [
        {
            "label": BY_NAME[name].label,
            "before": format_value(name, before),
            "after": format_value(name, after),
            "effect": EFFECT_LABELS[BY_NAME[name].effect],
        }
        for name, (before, after) in changes.items()
    ]
