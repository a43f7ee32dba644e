"""REST routes for people, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.people.api import teams, tokens, users
from console.resources.rest import make_urls

app_name = "accounts-api"
urlpatterns = [
    path("users/", users.UserListView.as_view(), name="users"),
    path("users/<str:username>/", users.UserView.as_view(), name="user"),
    path("users/<str:username>/password/", users.Password.as_view(), name="user-password"),
    *make_urls(teams.TEAMS),
    path("teams/<slug:slug>/members/", teams.Members.as_view(), name="members"),
    path("teams/<slug:slug>/members/<str:username>/", teams.MemberView.as_view(), name="member"),
    path("tokens/", tokens.TokenListView.as_view(), name="tokens"),
    path("tokens/<int:pk>/", tokens.TokenView.as_view(), name="token"),
]
