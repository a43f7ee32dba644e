"""Team pages: list, detail and changes through team_actions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import get_object_or_404, redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts import selectors
from console.accounts.gate import role_required
from console.accounts.models import MembershipSource, Team, TeamRole
from console.accounts.permissions import actor_of, allows
from console.core import uses
from console.core.errors import Refused
from console.people import team_actions
from console.people.forms import TeamForm
from console.web.forms import submit

PAGE = 50


@require_http_methods(["GET", "HEAD", "POST"])
def teams(request: HttpRequest) -> HttpResponseBase:
    """List teams; POST creates one."""
    form = TeamForm(request.POST if request.method == "POST" else None)

    def show(status: int) -> HttpResponse:
        owned = uses.by_name("team")
        teams = selectors.list_visible_teams(request.user)
        context = {
            "rows": [{"team": team, "owned": len(owned.get(team.slug, ()))} for team in teams],
            "form": form,
            "everywhere": allows(request.user, "viewer"),
        }
        return render(request, "console/access/teams.html", context, status=status)

    def done(made: Team) -> HttpResponse:
        messages.success(request, f"Team {made.name} created. Add members below.")
        return redirect(made)

    return submit(
        request, form, lambda: team_actions.create(actor_of(request), form.typed()), show, done
    )


@require_safe
def team(request: HttpRequest, slug: str) -> HttpResponse:
    return _render_team(request, find_team_or_404(request, slug))


@role_required("admin")
@require_POST
def change(request: HttpRequest, slug: str) -> HttpResponseBase:
    team = find_team_or_404(request, slug)
    form = TeamForm(request.POST, team=team)

    def done(_made: Team) -> HttpResponse:
        messages.success(request, f"Team {team.name} changed.")
        return redirect("accounts:team", slug)

    return submit(
        request,
        form,
        lambda: team_actions.change(actor_of(request), slug, form.typed()),
        lambda status: _render_team(request, team, form, status),
        done,
    )


@require_POST
def member_set(request: HttpRequest, slug: str) -> HttpResponseBase:
    find_team_or_404(request, slug)
    name, role = request.POST.get("username", "").strip(), request.POST.get("role", "")
    return _redirect_done(
        request,
        slug,
        lambda: team_actions.set_member(actor_of(request), slug, name, role),
        f"{name} now has the role {role} in this team.",
    )


@require_POST
def member_remove(request: HttpRequest, slug: str) -> HttpResponseBase:
    find_team_or_404(request, slug)
    name = request.POST.get("username", "")
    answer = _redirect_done(
        request,
        slug,
        lambda: team_actions.remove_member(actor_of(request), slug, name),
        f"{name} was removed from this team.",
    )
    # A user who left may not view the team page.
    return redirect("accounts:teams") if name == actor_of(request).username else answer


@role_required("admin")
@require_http_methods(["GET", "HEAD", "POST"])
def delete(request: HttpRequest, slug: str) -> HttpResponseBase:
    """Delete after the slug was typed: tokens limited to the team are revoked."""
    team = find_team_or_404(request, slug)
    error = ""
    if request.method == "POST":
        if request.POST.get("name", "").strip() == slug:
            try:
                team_actions.delete(actor_of(request), slug)
            except Refused as refused:
                error = str(refused)
            else:
                messages.success(request, f"Team {team.name} deleted.")
                return redirect("accounts:teams")
        else:
            error = f"Type {slug} to confirm. Nothing was deleted."
    context = {"team": team, "owned": uses.of("team", slug), "error": error}
    return render(request, "console/access/team_delete.html", context, status=400 if error else 200)


def find_team_or_404(request: HttpRequest, slug: str) -> Team:
    return get_object_or_404(selectors.list_teams_with_role(request.user), slug=slug)


def _render_team(
    request: HttpRequest, one: Team, form: TeamForm | None = None, status: int = 200
) -> HttpResponse:
    form = form or TeamForm(team=one)
    context: dict[str, Any] = {
        "team": one,
        "page": Paginator(selectors.list_members(one), PAGE).get_page(request.GET.get("page")),
        "by_hand": MembershipSource.HAND,
        "roles": TeamRole.choices,
        "owned": uses.of("team", one.slug),
        "everywhere": selectors.list_console_wide_users(),
        "may_manage": allows(request.user, "admin", of=one),
        "form": form,
    }
    return render(request, "console/access/team.html", context, status=status)


def _redirect_done(
    request: HttpRequest, slug: str, act: Callable[[], Any], text: str
) -> HttpResponseBase:
    try:
        act()
    except Refused as error:
        messages.error(request, str(error))
    else:
        messages.success(request, text)
    return redirect("accounts:team", slug)
