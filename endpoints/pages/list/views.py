"""Endpoint list: search, filters, sorting, column choice and bulk actions.

Values from Prometheus are loaded by a second request.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.accounts.gate import role_required
from console.web import preferences, responses
from endpoints import selectors
from endpoints.choices import SETTLED, Phase
from endpoints.pages.head import SETTLED_POLL_S, UNSETTLED_POLL_S, WHOLE
from endpoints.pages.list import bulk_actions
from endpoints.pages.list import columns as list_columns
from endpoints.pages.list import query as list_query
from endpoints.spec.fields import STRATEGIES


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    query = list_query.ListQuery.read(request.GET.dict())
    matching = list_query.rows(request.user, query)
    page = Paginator(matching, list_query.PAGE_SIZE).get_page(request.GET.get("page"))
    columns_shown = list_columns.choose_columns(
        preferences.get_preference(request.user, list_columns.KEY)
    )
    part = responses.wants_partial(request)
    rows = list(page.object_list)
    moving = any(endpoint.shown_phase not in SETTLED for endpoint in rows)
    context = {
        "page": page,
        "wanted": query,
        "poll_s": UNSETTLED_POLL_S if moving else SETTLED_POLL_S,
        "heads": [_head(column, query.sort) for column in columns_shown],
        "name_head": _head(list_columns.Column("name", "Name", sort="name"), query.sort),
        "shown": columns_shown,
        "cells": list_columns.cells(columns_shown, rows) if part else {},
        "at_once": list_columns.has_deferred(columns_shown) and not part,
        "verbs": bulk_actions.VERBS.values(),
    }
    if not part:
        context |= _page(request, columns_shown)
    return responses.render(request, "endpoints/list.html", "endpoints/htmx/rows.html", context)


def _page(request: HttpRequest, shown: tuple[list_columns.Column, ...]) -> dict[str, Any]:
    return {
        "phases": [str(phase) for phase in Phase],
        "strategies": STRATEGIES,
        "choices": list_query.choices(request.user),
        "columns": [(column, column in shown) for column in list_columns.columns()],
        "query": request.GET.urlencode(),
    }


def _head(column: list_columns.Column, sort: str) -> dict[str, Any]:
    """`sort`: sort key of the next click, ascending first."""
    key = column.sort
    up, down = bool(key) and sort == key, bool(key) and sort == f"-{key}"
    return {"column": column, "up": up, "down": down, "sort": f"-{key}" if up else key}


@require_POST
def columns(request: HttpRequest) -> HttpResponseBase:
    keys = {column.key for column in list_columns.columns()}
    chosen = None if "reset" in request.POST else sorted(keys & set(request.POST.getlist("column")))
    preferences.set_preference(request.user, list_columns.KEY, chosen)
    query = request.POST.get("query", "")
    return redirect(f"{reverse('endpoints:list')}{'?' if query else ''}{query}")


@require_POST
@role_required("operator", somewhere=True)
def bulk_confirm(request: HttpRequest) -> HttpResponseBase:
    verb = bulk_actions.VERBS.get(request.POST.get("verb", ""))
    names = list(dict.fromkeys(request.POST.getlist("name")))[: bulk_actions.MAX_ITEMS]
    selected = list(selectors.endpoints(request.user).filter(name__in=names))
    if verb is None or not selected:
        messages.error(request, "No endpoints selected. Select endpoints and an action.")
        return redirect("endpoints:list")
    context = {"verb": verb, "endpoints": selected, "replicas": request.POST.get("replicas", "")}
    return render(request, "endpoints/bulk.html", context)


@require_POST
@role_required("operator", somewhere=True)
def bulk_run(request: HttpRequest) -> HttpResponseBase:
    verb = bulk_actions.VERBS.get(request.POST.get("verb", ""))
    items = _items(request)
    if verb is None or not items:
        messages.error(request, "No endpoints selected. Nothing was changed.")
        return redirect("endpoints:list")
    if verb.danger and request.POST.get("typed", "").strip() != str(len(items)):
        selected = list(selectors.endpoints(request.user).filter(name__in=[i.name for i in items]))
        error = f"Number does not match: type {len(items)} to confirm. Nothing was deleted."
        context = {"verb": verb, "endpoints": selected, "error": error}
        return render(request, "endpoints/bulk.html", context, status=400)
    typed = request.POST.get("replicas", "").strip()
    replicas: Any = int(typed) if WHOLE.fullmatch(typed) else typed
    results = bulk_actions.run(request.user, verb.key, items, replicas=replicas)
    context = {"verb": verb, "results": results, "done": sum(result.ok for result in results)}
    return render(request, "endpoints/bulk_done.html", context)


def _items(request: HttpRequest) -> list[bulk_actions.BulkItem]:
    names = list(dict.fromkeys(request.POST.getlist("name")))[: bulk_actions.MAX_ITEMS]
    items = [bulk_actions.BulkItem(name) for name in names]
    generations = {item.name: request.POST.get(f"generation-{item.name}", "") for item in items}
    return [
        replace(item, generation=int(generations[item.name]))
        if WHOLE.fullmatch(generations[item.name])
        else item
        for item in items
    ]
