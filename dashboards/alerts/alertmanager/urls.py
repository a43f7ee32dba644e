"""Page routes of receivers and silences, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.alerts.alertmanager.pages import receivers, silences

app_name = "notify"
urlpatterns: list[URLPattern | URLResolver] = [
    path("silences/", silences.index, name="silences"),
    path("silences/new/", silences.new, name="silence_new"),
    path("acknowledge/", silences.acknowledge, name="acknowledge"),
    path("silences/<str:silence>/", silences.change, name="silence"),
    path("silences/<str:silence>/expire/", silences.expire, name="silence_expire"),
    path("receivers/", receivers.index, name="receivers"),
    path("receivers/alertmanager.yml", receivers.as_yml, name="alertmanager_yml"),
    path("receivers/alertmanagerconfig.yml", receivers.as_object, name="alertmanager_object"),
    path("receivers/new/", receivers.new, name="receiver_new"),
    path("receivers/<slug:name>/", receivers.receiver, name="receiver"),
    path("receivers/<slug:name>/test/", receivers.try_out, name="receiver_test"),
    path("receivers/<slug:name>/delete/", receivers.remove, name="receiver_delete"),
    path("routes/new/", receivers.route_new, name="route_new"),
    path("routes/<uuid:route>/", receivers.route, name="route"),
    path("routes/<uuid:route>/delete/", receivers.route_remove, name="route_delete"),
]
