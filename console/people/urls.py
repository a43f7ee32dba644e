"""User and team pages, mounted at the root."""

from __future__ import annotations

from django.urls import path

from console.people.pages import teams, tokens, users

app_name = "accounts"
urlpatterns = [
    path("profile/", tokens.profile, name="profile"),
    path("profile/tokens/", tokens.token_create, name="token-create"),
    path("profile/tokens/<int:pk>/revoke/", tokens.token_revoke, name="token-revoke"),
    path("access/", users.people, name="people"),
    path("access/<int:pk>/role/", users.person_role, name="person-role"),
    path("access/<int:pk>/active/", users.person_active, name="person-active"),
    path("access/<int:pk>/password/", users.person_password, name="person-password"),
    path("access/teams/", teams.teams, name="teams"),
    path("access/teams/<slug:slug>/", teams.team, name="team"),
    path("access/teams/<slug:slug>/change/", teams.change, name="team-change"),
    path("access/teams/<slug:slug>/delete/", teams.delete, name="team-delete"),
    path("access/teams/<slug:slug>/members/", teams.member_set, name="member-set"),
    path("access/teams/<slug:slug>/members/remove/", teams.member_remove, name="member-remove"),
    path("access/tokens/", tokens.tokens, name="tokens"),
    path("access/tokens/<int:pk>/revoke/", tokens.revoke, name="token-end"),
]
