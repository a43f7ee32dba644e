"""Routes of `/me/`, the OpenAPI document and Swagger UI."""

from __future__ import annotations

from django.urls import path

from console.api import views

app_name = "api"
urlpatterns = [
    path("", views.Root.as_view(), name="root"),
    path("me/", views.Me.as_view(), name="me"),
    path("schema/", views.Schema.as_view(), name="schema"),
    path("docs/", views.redirect_docs, name="docs"),
    path("docs/try/", views.render_explorer, name="explorer"),
]
