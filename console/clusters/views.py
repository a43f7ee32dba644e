"""Cluster pages: list, capabilities, rights, and changes by admins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import actor_of
from console.clusters import actions, related_objects, selectors
from console.clusters.forms import ClusterForm
from console.clusters.models import Cluster
from console.provisioners.kubernetes.api.access import CONTEXT, KUBECONFIG, machine_contexts
from console.provisioners.kubernetes.api.kubeconfig import (
    ContextSeen,
    KubeconfigError,
    parse_kubeconfig,
)
from console.web import responses
from console.web.confirm_by_name import confirm_by_name
from console.web.forms import submit
from console.web.shell.cards import Card, Fact
from console.web.shell.search import MAX_HITS_PER_FINDER, Hit


@require_safe
def clusters(request: HttpRequest) -> HttpResponse:
    context = {"rows": selectors.details(request.user)}
    return responses.render(request, "clusters/list.html", "clusters/htmx/list.html", context)


@require_safe
def cluster(request: HttpRequest, name: str) -> HttpResponse:
    row = selectors.detail(_found(name), request.user)
    context = {"row": row, "related": related_objects.list_related(name, request.user)}
    return responses.render(request, "clusters/cluster.html", "clusters/htmx/cluster.html", context)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def edit(request: HttpRequest, name: str = "") -> HttpResponseBase:
    """Add a cluster, or change the one of that name."""
    cluster = _found(name) if name else None
    sent = (request.POST, request.FILES) if request.method == "POST" else ()
    form = ClusterForm(*sent, cluster=cluster)

    def act() -> Cluster:
        if cluster is not None:
            return actions.change_cluster(actor_of(request), name, form.typed())
        confirmed = request.POST.get("name", "").strip()
        return actions.add_cluster(actor_of(request), confirmed, form.typed())

    def show(status: int) -> HttpResponse:
        context = {"form": form, "cluster": cluster}
        return render(request, "clusters/form.html", context, status=status)

    def done(made: Cluster) -> HttpResponse:
        result = "changed; its check has started" if cluster else "added; its check has started"
        messages.success(request, f"Cluster {made.name} is {result}.")
        return redirect("clusters:cluster", made.name)

    return submit(request, form, act, show, done)


@require_POST
@role_required("admin")
def contexts(request: HttpRequest) -> HttpResponse:
    """Return the contexts of the pasted kubeconfig or of the server's; stores nothing."""
    form = ClusterForm(request.POST, request.FILES)
    kind, text = request.POST.get("kind") or KUBECONFIG, form.typed().get("kubeconfig", "")
    contexts: tuple[ContextSeen, ...] = ()
    current = error = ""
    if kind == CONTEXT:
        contexts = tuple(ContextSeen(machine_context) for machine_context in machine_contexts())
        current = contexts[0].name if contexts else ""
        error = "" if contexts else "The console's machine has no kubeconfig."
    elif kind == KUBECONFIG and text:
        try:
            kubeconfig = parse_kubeconfig(text)
            contexts, current = kubeconfig.contexts, kubeconfig.current
        except KubeconfigError as refused:
            error = str(refused)
    chosen = request.POST.get("context") or current
    context = {"form": form, "seen": contexts, "chosen": chosen, "error": error, "kind": kind}
    return render(request, "clusters/htmx/contexts.html", context)


@require_POST
@role_required("operator")
def check(request: HttpRequest, name: str) -> HttpResponse:
    actions.check_cluster(actor_of(request), _found(name).name)
    messages.info(request, f"Cluster {name} is asked now.")
    return redirect("clusters:cluster", name)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("admin")
def remove(request: HttpRequest, name: str) -> HttpResponseBase:
    cluster = _found(name)
    return confirm_by_name(
        request,
        name,
        lambda: actions.remove_cluster(actor_of(request), name),
        page=("clusters/remove.html", {"row": selectors.detail(cluster, request.user)}),
        words=("remove", "removed"),
        done=(f"Cluster {name} and its credentials removed.", "clusters:list"),
    )


def _found(name: str) -> Cluster:
    return get_object_or_404(selectors.clusters(), name=name)


SHOWN_FACTS = 8


def find(_viewer: Any, text: str) -> Sequence[Hit]:
    """Search clusters; any role may view them."""
    rows = selectors.clusters().filter(name__icontains=text)[:MAX_HITS_PER_FINDER]
    return [
        Hit("cluster", row.name, reverse("clusters:cluster", args=[row.name]), "topology-star-3")
        for row in rows
    ]


def facts(_viewer: Any) -> Sequence[Fact]:
    rows = list(selectors.clusters()[:SHOWN_FACTS])
    cluster_rows = [
        Fact(row.name, str(row.status.phase), reverse("clusters:cluster", args=[row.name]))
        for row in rows
    ]
    return cluster_rows or [Fact("None", "Workers run on the console host.")]


CARD = Card(
    "clusters",
    "Clusters",
    "Deployment targets of endpoints and cache tiers.",
    20,
    facts,
    "clusters:list",
    "Clusters",
)
