"""Pages of the shell: quick search, Settings and About."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from console.accounts.permissions import allows
from console.web import about as parts
from console.web import responses
from console.web.shell import cards
from console.web.shell import search as shell_search


@require_safe
def search(request: HttpRequest) -> HttpResponse:
    text = shell_search.clean_text(request.GET.get("q", ""))
    context = {"q": text, "groups": shell_search.search_all(request.user, text)}
    return responses.render(request, "console/search.html", "console/htmx/hits.html", context)


@require_safe
def settings(request: HttpRequest) -> HttpResponse:
    return render(request, "console/settings.html", {"cards": cards.list_cards(request.user)})


@require_safe
def about(request: HttpRequest) -> HttpResponse:
    """List versions; packages for admins only, since they reveal known vulnerabilities."""
    context = {
        "version": parts.version(),
        "runtime": parts.runtime(),
        "browser_files": parts.browser_files(),
        "packages": parts.packages() if allows(request.user, "admin") else (),
    }
    return render(request, "console/about.html", context)
