"""REST URLs, mounted below "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from routing.api import canary, strategies, traces, views

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
    path("endpoints/<endpoint:name>/canary/", canary.CanaryView.as_view(), name="canary"),
    path(
        "endpoints/<endpoint:name>/canary/promote/",
        canary.CanaryPromotion.as_view(),
        name="canary-promotion",
    ),
    path("endpoints/<endpoint:name>/traces/", traces.Traces.as_view(), name="traces"),
    path(
        "endpoints/<endpoint:name>/traces/export/",
        traces.TraceExport.as_view(),
        name="trace-export",
    ),
    path(
        "endpoints/<endpoint:name>/traces/imports/",
        traces.TraceImports.as_view(),
        name="trace-imports",
    ),
    path(
        "endpoints/<endpoint:name>/traces/imports/<str:trace>/",
        traces.OneTraceImport.as_view(),
        name="trace-import",
    ),
    path("endpoints/<endpoint:name>/doctor/", views.Doctor.as_view(), name="doctor"),
]
