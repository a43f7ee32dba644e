"""REST routes for people, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.people.api import teams, tokens, users

app_name = "accounts-api"
urlpatterns = [
    path("users/", users.UserListView.as_view(), name="users"),
    path("users/<str:username>/", users.UserView.as_view(), name="user"),
    path("users/<str:username>/password/", users.Password.as_view(), name="user-password"),
    path("teams/", teams.Teams.as_view(), name="teams"),
    path("teams/<slug:slug>/", teams.TeamView.as_view(), name="team"),
    path("teams/<slug:slug>/members/", teams.Members.as_view(), name="members"),
    path("teams/<slug:slug>/members/<str:username>/", teams.MemberView.as_view(), name="member"),
    path("tokens/", tokens.TokenListView.as_view(), name="tokens"),
    path("tokens/<int:pk>/", tokens.TokenView.as_view(), name="token"),
]
