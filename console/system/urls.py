"""The System page, mounted under "/system/"."""

from __future__ import annotations

from django.urls import path

from console.system import views

app_name = "system"
urlpatterns = [
    path("", views.processes, name="processes"),
    path("rounds/", views.rounds_seen, name="rounds"),
    path("logs/<slug:name>/", views.log, name="log"),
]
