"""REST URLs, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from endpoints.api import routing as views
from endpoints.api import strategies

app_name = "routing-api"
urlpatterns = [
    path("endpoints/<endpoint:name>/decisions/", views.Decisions.as_view(), name="decisions"),
    path(
        "endpoints/<endpoint:name>/decisions/<str:number>/",
        views.OneDecision.as_view(),
        name="decision",
    ),
    path("endpoints/<endpoint:name>/routing/", strategies.Routing.as_view(), name="routing"),
    path(
        "endpoints/<endpoint:name>/strategies/", strategies.Strategies.as_view(), name="strategies"
    ),
    path("endpoints/<endpoint:name>/explain/", strategies.Explain.as_view(), name="explain"),
    path("endpoints/<endpoint:name>/chat/", strategies.Chat.as_view(), name="chat"),
    path("endpoints/<endpoint:name>/prefixes/", views.Prefixes.as_view(), name="prefixes"),
    path(
        "endpoints/<endpoint:name>/prefixes/<str:digest>/", views.OnePrefix.as_view(), name="prefix"
    ),
    path("endpoints/<endpoint:name>/kv-index/", views.KvIndex.as_view(), name="kv-index"),
    path("endpoints/<endpoint:name>/routers/", views.Routers.as_view(), name="routers"),
    path("endpoints/<endpoint:name>/doctor/", views.Doctor.as_view(), name="doctor"),
]
