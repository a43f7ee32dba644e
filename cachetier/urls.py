"""Page URLs, mounted below "/cache/"."""

from __future__ import annotations

from django.urls import path

from cachetier.pages import views

app_name = "cachetier"
urlpatterns = [
    path("", views.tiers, name="tiers"),
    path("new/", views.new, name="new"),
    path("new/look/", views.preview_create, name="look-new"),
    path("<slug:name>/", views.tier, name="tier"),
    path("<slug:name>/edit/", views.edit, name="edit"),
    path("<slug:name>/edit/look/", views.preview_change, name="look"),
    path("<slug:name>/flush/", views.flush, name="flush"),
    path("<slug:name>/delete/", views.delete, name="delete"),
]
