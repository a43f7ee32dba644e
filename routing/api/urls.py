"""REST of this room, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from routing.api import views

app_name = "routing-api"
urlpatterns = [
    path("endpoints/<endpoint:name>/decisions/", views.Decisions.as_view(), name="decisions"),
    path(
        "endpoints/<endpoint:name>/decisions/<str:number>/",
        views.OneDecision.as_view(),
        name="decision",
    ),
    path("endpoints/<endpoint:name>/kv-index/", views.KvIndex.as_view(), name="kv-index"),
    path("endpoints/<endpoint:name>/doctor/", views.Doctor.as_view(), name="doctor"),
]
