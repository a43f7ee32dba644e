"""Pages about people, mounted at the root."""

from __future__ import annotations

from django.urls import path

from console.accounts import views, views_people, views_teams, views_tokens

app_name = "accounts"
urlpatterns = [
    path("profile/", views.profile, name="profile"),
    path("profile/tokens/", views.token_create, name="token-create"),
    path("profile/tokens/<int:pk>/revoke/", views.token_revoke, name="token-revoke"),
    path("access/", views_people.people, name="people"),
    path("access/<int:pk>/role/", views_people.person_role, name="person-role"),
    path("access/<int:pk>/active/", views_people.person_active, name="person-active"),
    path("access/<int:pk>/password/", views_people.person_password, name="person-password"),
    path("access/teams/", views_teams.teams, name="teams"),
    path("access/teams/<slug:slug>/", views_teams.team, name="team"),
    path("access/teams/<slug:slug>/change/", views_teams.change, name="team-change"),
    path("access/teams/<slug:slug>/delete/", views_teams.delete, name="team-delete"),
    path("access/teams/<slug:slug>/members/", views_teams.member_set, name="member-set"),
    path(
        "access/teams/<slug:slug>/members/remove/", views_teams.member_remove, name="member-remove"
    ),
    path("access/tokens/", views_tokens.tokens, name="tokens"),
    path("access/tokens/<int:pk>/revoke/", views_tokens.revoke, name="token-end"),
]
