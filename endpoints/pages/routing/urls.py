"""Page URLs, mounted below "/routing/"."""

from __future__ import annotations

from django.urls import path

from endpoints.pages.routing import views

app_name = "routing"
urlpatterns = [
    path("", views.index, name="index"),
    path("endpoints/<endpoint:name>/", views.endpoint, name="endpoint"),
    path("endpoints/<endpoint:name>/stream/", views.decision_stream, name="stream"),
    path("endpoints/<endpoint:name>/strategy/", views.show_strategy, name="strategy"),
    path("endpoints/<endpoint:name>/explain/", views.explain, name="explain"),
    path("endpoints/<endpoint:name>/prefixes/", views.show_prefixes, name="prefixes"),
    path(
        "endpoints/<endpoint:name>/prefixes/<str:digest>/name/",
        views.name_prefix,
        name="prefix-name",
    ),
    path("endpoints/<endpoint:name>/kv/", views.kv, name="kv"),
    path("endpoints/<endpoint:name>/routers/", views.routers, name="routers"),
    path("endpoints/<endpoint:name>/doctor/", views.doctor, name="doctor"),
    path("endpoints/<endpoint:name>/decisions/<str:number>/", views.decision, name="decision"),
]
