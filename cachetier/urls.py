"""Pages of this room, mounted by console.urls under "/cache/"."""

from __future__ import annotations

from django.urls import path

from cachetier import views

app_name = "cachetier"
urlpatterns = [
    path("", views.tiers, name="tiers"),
    path("<slug:name>/resize/", views.resize, name="resize"),
    path("<slug:name>/delete/", views.delete, name="delete"),
]
