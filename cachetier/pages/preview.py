"""Live preview of the cache tier form: validation errors and effects of the change.

Uses the validation of the API; writes nothing.
"""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from cachetier import selectors
from cachetier.models import CacheTier
from cachetier.pages.forms import EFFECT_LABELS, TierForm, format_value
from cachetier.tier import spec
from cachetier.tier.spec import BY_NAME, Effect, Problem, Refused, TierSpec
from console.accounts.gate import role_required

_EFFECT_TEXTS = {
    Effect.LIVE: "Restarts nothing, and forgets nothing that still fits.",
    Effect.NODES: "Each node restarts in turn: what it holds in memory is forgotten.",
    Effect.WORKERS: "The workers of every endpoint that uses it restart, one at a time.",
}


@require_POST
@role_required("operator")
def preview_create(request: HttpRequest) -> HttpResponse:
    room = selectors.spare_capacity()
    form = TierForm(request.POST, clusters=room.clusters)
    name = request.POST.get("name", "").strip()
    problems = _render_errors(lambda: spec.check_name(name))
    if not problems and selectors.get_tier(name) is not None:
        text = f"There is a cache tier {name} already."
        remedy = "Choose another name, or change that one."
        problems = (Problem("name", name, text, remedy, "taken"),)
    problems += _render_errors(lambda: spec.create_spec(form.typed(), room))
    return _render_preview(request, form, problems, None, {})


@require_POST
@role_required("operator")
def preview_change(request: HttpRequest, name: str) -> HttpResponse:
    found = selectors.get_tier(name)
    if found is None:
        raise Http404
    form = TierForm(request.POST, spec=found.spec)
    wanted: list[TierSpec] = []
    problems = _render_errors(
        lambda: wanted.append(
            spec.change_spec(found.spec, form.typed(), selectors.spare_capacity())
        )
    )
    changes = spec.list_changes(found.spec, wanted[0]) if wanted else {}
    return _render_preview(request, form, problems, found, changes)


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
                "problem": one,
                "label": form.fields[one.field].label if one.field in form.fields else "",
            }
            for one in problems
        ],
        "slots": [
            {
                **row,
                "errors": [
                    one
                    for one in problems
                    if one.field == row["field"].name and one.field in touched
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
