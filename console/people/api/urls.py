"""REST of this room, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.people.api import teams, tokens, users

app_name = "accounts-api"
urlpatterns = [
    path("users/", users.Users.as_view(), name="users"),
    path("users/<str:username>/", users.OneUser.as_view(), name="user"),
    path("users/<str:username>/password/", users.Password.as_view(), name="user-password"),
    path("teams/", teams.Teams.as_view(), name="teams"),
    path("teams/<slug:slug>/", teams.OneTeam.as_view(), name="team"),
    path("teams/<slug:slug>/members/", teams.Members.as_view(), name="members"),
    path("teams/<slug:slug>/members/<str:username>/", teams.OneMember.as_view(), name="member"),
    path("tokens/", tokens.Tokens.as_view(), name="tokens"),
    path("tokens/<int:pk>/", tokens.OneToken.as_view(), name="token"),
]
