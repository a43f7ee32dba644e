"""Pages about people, mounted at the root."""

from __future__ import annotations

from django.urls import path

from console.accounts import views

app_name = "accounts"
urlpatterns = [
    path("profile/", views.profile, name="profile"),
    path("profile/tokens/", views.token_create, name="token-create"),
    path("profile/tokens/<int:pk>/revoke/", views.token_revoke, name="token-revoke"),
    path("access/", views.people, name="people"),
    path("access/<int:pk>/role/", views.person_role, name="person-role"),
    path("access/<int:pk>/active/", views.person_active, name="person-active"),
    path("access/<int:pk>/password/", views.person_password, name="person-password"),
]
