from __future__ import annotations

from django.urls import path

from console.system.api import views

app_name = "system-api"
urlpatterns = [
    path("system/processes/", views.Processes.as_view(), name="processes"),
    path("system/rounds/", views.Rounds.as_view(), name="rounds"),
]
