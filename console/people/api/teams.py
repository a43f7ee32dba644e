"""/api/v1/teams/: teams and members. Team members see their own teams."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from django.db.models import QuerySet
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts import selectors
from console.accounts.models import Membership, Team
from console.accounts.permissions import actor_of
from console.api.bodies import read_body
from console.api.parameters import IF_MATCH, Filter
from console.api.preconditions import require_match
from console.people import team_actions
from console.people.api.serializers import (
    MemberSerializer,
    NewTeamSerializer,
    RoleSerializer,
    TeamSerializer,
    TeamWriteSerializer,
)
from console.people.team_actions import FIELDS
from console.resources.rest import Resource

_TAGS = ["access"]


TEAMS = Resource(
    path="teams",
    key="slug:slug",
    noun="team",
    tag="access",
    about={
        "create": "Requires the admin role.",
        "change": "Requires the admin role. Endpoints outside new namespaces stay where they are.",
        "delete": "Rejected while the team owns an endpoint. Tokens limited to the team are "
        "revoked.",
    },
    document=TeamSerializer,
    new=NewTeamSerializer,
    changed=TeamWriteSerializer,
    rows=selectors.list_visible_teams,
    filters=(Filter("q", ("name__icontains", "slug__icontains"), "Part of name or slug."),),
    create=team_actions.create,
    change=team_actions.change,
    delete=team_actions.delete,
    facts=FIELDS.values,
    labels={name: (name.capitalize(), "") for name in FIELDS.names},
    generation=False,
    view={"write_role": "admin", "list_order": ("name",)},
)


@extend_schema_view(get=extend_schema(tags=_TAGS, summary="List team members"))
class Members(ListAPIView[Membership]):
    serializer_class = MemberSerializer
    list_order = ("user__username",)

    def get_queryset(self) -> QuerySet[Membership]:
        if getattr(self, "swagger_fake_view", False):
            return Membership.objects.none()
        return selectors.list_members(find_team_or_404(self.request, self.kwargs["slug"]))


class MemberView(GenericAPIView[Membership]):
    write_role = "admin"
    write_somewhere = True
    serializer_class = MemberSerializer

    @extend_schema(tags=_TAGS, summary="Read a membership")
    def get(self, request: Request, slug: str, username: str) -> Response:
        return Response(_member(request, slug, username))

    @extend_schema(
        tags=_TAGS,
        summary="Add a member or change the role",
        parameters=[IF_MATCH],
        request=RoleSerializer,
    )
    def put(self, request: Request, slug: str, username: str) -> Response:
        """Requires the admin role, for the team or console-wide."""
        data = read_body(RoleSerializer, request.data)
        with _require_match(request, slug, username):
            team_actions.set_member(actor_of(request), slug, username, data["role"])
        return Response(_member(request, slug, username))

    @extend_schema(tags=_TAGS, summary="Remove a member", parameters=[IF_MATCH])
    def delete(self, request: Request, slug: str, username: str) -> Response:
        _member(request, slug, username)
        with _require_match(request, slug, username):
            team_actions.remove_member(actor_of(request), slug, username)
        return Response(status=204)


def _require_match(request: Request, slug: str, username: str) -> AbstractContextManager[None]:
    members = selectors.list_members(find_team_or_404(request, slug))
    rows = members.filter(user__username=username)

    def read() -> Any:
        row = rows.first()
        return MemberSerializer(row).data if row else None

    return require_match(request, Membership.objects.filter(pk__in=rows.values("pk")), read)


def find_team_or_404(request: Request, slug: str) -> Team:
    return get_object_or_404(selectors.list_visible_teams(request.user), slug=slug)


def _member(request: Request, slug: str, username: str) -> Any:
    members = selectors.list_members(find_team_or_404(request, slug))
    return MemberSerializer(get_object_or_404(members, user__username=username)).data
