"""REST routes of silences, receivers and routes, mounted under "/api/v1/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from console.resources.rest import make_urls
from dashboards.alerts.alertmanager.api import acknowledgements, receivers, silences

app_name = "notify-api"
urlpatterns: list[URLPattern | URLResolver] = [
    path("silences/", silences.SilenceListView.as_view(), name="silences"),
    path("silences/<str:silence>/", silences.SilenceView.as_view(), name="silence"),
    path(
        "acknowledgements/",
        acknowledgements.AcknowledgementListView.as_view(),
        name="acknowledgements",
    ),
    path(
        "acknowledgements/<str:silence>/",
        acknowledgements.AcknowledgementView.as_view(),
        name="acknowledgement",
    ),
    *make_urls(receivers.RECEIVERS),
    path("receivers/<slug:name>/test/", receivers.ReceiverTestView.as_view(), name="receiver_test"),
    path(
        "alertmanager-config/", receivers.AlertmanagerConfigView.as_view(), name="for_alertmanager"
    ),
    *make_urls(receivers.ROUTES),
]
