"""Pages of who is told of alerts, mounted by console.urls under "alerts/"."""

from __future__ import annotations

from django.urls import URLPattern, URLResolver, path

from dashboards.notify import views_receivers, views_silences

app_name = "notify"
urlpatterns: list[URLPattern | URLResolver] = [
    path("silences/", views_silences.index, name="silences"),
    path("silences/new/", views_silences.new, name="silence_new"),
    path("silences/<uuid:silence>/", views_silences.change, name="silence"),
    path("silences/<uuid:silence>/expire/", views_silences.expire, name="silence_expire"),
    path("receivers/", views_receivers.index, name="receivers"),
    path("receivers/alertmanager.yml", views_receivers.as_yml, name="alertmanager_yml"),
    path(
        "receivers/alertmanagerconfig.yml",
        views_receivers.as_object,
        name="alertmanager_object",
    ),
    path("receivers/new/", views_receivers.new, name="receiver_new"),
    path("receivers/<slug:name>/", views_receivers.receiver, name="receiver"),
    path("receivers/<slug:name>/test/", views_receivers.try_out, name="receiver_test"),
    path("receivers/<slug:name>/delete/", views_receivers.remove, name="receiver_delete"),
    path("routes/new/", views_receivers.route_new, name="route_new"),
    path("routes/<uuid:route>/", views_receivers.route, name="route"),
    path("routes/<uuid:route>/delete/", views_receivers.route_remove, name="route_delete"),
    path("history/", views_receivers.history, name="history"),
    path("history/<uuid:delivery>/", views_receivers.delivery, name="delivery"),
]
