"""Page URLs of the advisor, mounted below "/advisor/"."""

from __future__ import annotations

from django.urls import path

from dashboards.insight.advisor import views

app_name = "advisor"
urlpatterns = [
    path("endpoints/<endpoint:name>/", views.endpoint, name="endpoint"),
    path("endpoints/<endpoint:name>/cancel/", views.cancel, name="cancel"),
]
