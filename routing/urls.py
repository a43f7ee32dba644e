"""Pages of this room, mounted by console.urls under "/routing/"."""

from __future__ import annotations

from django.urls import path

from routing import views

app_name = "routing"
urlpatterns = [
    path("", views.index, name="index"),
    path("endpoints/<slug:name>/", views.endpoint, name="endpoint"),
    path("endpoints/<slug:name>/explain/", views.explain, name="explain"),
    path("endpoints/<slug:name>/kv/", views.kv, name="kv"),
    path("endpoints/<slug:name>/doctor/", views.doctor, name="doctor"),
    path("endpoints/<slug:name>/decisions/<str:number>/", views.decision, name="decision"),
]
