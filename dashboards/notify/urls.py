"""Pages of who is told of alerts, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.notify import views_silences

app_name = "notify"
urlpatterns: list[URLPattern | URLResolver] = [
    path("silences/", views_silences.index, name="silences"),
    path("silences/new/", views_silences.new, name="silence_new"),
    path("silences/<uuid:silence>/expire/", views_silences.expire, name="silence_expire"),
]
