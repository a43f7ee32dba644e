"""Pages of this room, mounted by console.urls under "/routing/"."""

from __future__ import annotations

from django.urls import path

from routing import views

app_name = "routing"
urlpatterns = [
    path("", views.index, name="index"),
    path("endpoints/<endpoint:name>/", views.endpoint, name="endpoint"),
    path("endpoints/<endpoint:name>/explain/", views.explain, name="explain"),
    path("endpoints/<endpoint:name>/kv/", views.kv, name="kv"),
    path("endpoints/<endpoint:name>/doctor/", views.doctor, name="doctor"),
    path("endpoints/<endpoint:name>/decisions/<str:number>/", views.decision, name="decision"),
]
