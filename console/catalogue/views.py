"""Instance type pages: sizes, prices and their dates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import actor_of
from console.catalogue import actions, selectors
from console.catalogue.core import rules
from console.catalogue.core.builtin import Instance
from console.catalogue.forms import InstanceForm
from console.catalogue.selectors import list_entries
from console.core.errors import Refused
from console.web.forms import submit
from console.web.shell.cards import Card, Fact


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    return render(request, "catalogue/list.html", {"entries": selectors.list_entries()})


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Add an instance type, or change the one of that name."""
    entry = selectors.get(name) if name else None
    if name and entry is None:
        raise Http404
    shown = rules.to_data(entry.instance) if entry else {}
    form = InstanceForm(request.POST if request.method == "POST" else None, name=name, shown=shown)

    def act() -> Instance:
        wanted = name or str(request.POST.get("name", "")).strip()
        return actions.save_instance_type(actor_of(request), wanted, form.typed())

    def show(status: int) -> HttpResponse:
        history = selectors.price_history(name) if entry else ()
        context = {"form": form, "entry": entry, "history": history}
        return render(request, "catalogue/form.html", context, status=status)

    def done(made: Instance) -> HttpResponse:
        messages.success(request, f"{made.name} saved.")
        return redirect("catalogue:list")

    return submit(request, form, act, show, done)


@require_POST
@role_required("operator")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    try:
        back = actions.remove_instance_type(actor_of(request), name)
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(
            request, f"{name} {'reset to the built-in values' if back else 'removed'}."
        )
    return redirect("catalogue:list")


def facts(_viewer: Any) -> Sequence[Fact]:
    every = list_entries()
    priced = sum(one.instance.price_usd_hour is not None for one in every)
    return (
        Fact("Instance types", str(len(every))),
        Fact("With a price", str(priced)),
        Fact("Changed or added here", str(sum(one.origin != "built-in" for one in every))),
    )


CARD = Card(
    "prices",
    "Prices",
    "Basis of costs and savings.",
    30,
    facts,
    "catalogue:list",
    "Instance types",
)
