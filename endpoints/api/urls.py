"""REST routes of endpoints, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.resources.rest import make_urls
from endpoints.api import (
    cluster,
    follows,
    key_groups,
    keys,
    logs,
    manifests,
    model_catalogue,
    spec_checks,
    verbs,
    views,
)

app_name = "endpoints-api"
urlpatterns = [
    path("fit/", spec_checks.FitView.as_view(), name="fit"),
    path("models/", model_catalogue.Models.as_view(), name="models"),
    path("models/check/", model_catalogue.CheckModel.as_view(), name="model-check"),
    path("preview/", spec_checks.PreviewView.as_view(), name="preview"),
    path("follows/", follows.Follows.as_view(), name="follows"),
    path("follows/<uuid:follow_id>/", follows.OneFollow.as_view(), name="follow"),
    path("endpoints/", views.Endpoints.as_view(), name="list"),
    path("endpoints/apply/", manifests.Apply.as_view(), name="apply"),
    path("endpoints/<endpoint:name>/", views.OneEndpoint.as_view(), name="one"),
    path("endpoints/<endpoint:name>/export/", manifests.Export.as_view(), name="export"),
    path("endpoints/<endpoint:name>/scale/", verbs.Scale.as_view(), name="scale"),
    path("endpoints/<endpoint:name>/move/", verbs.Move.as_view(), name="move"),
    path("endpoints/<endpoint:name>/pause/", verbs.Pause.as_view(), name="pause"),
    path("endpoints/<endpoint:name>/resume/", verbs.Resume.as_view(), name="resume"),
    path("endpoints/<endpoint:name>/rollback/", verbs.Rollback.as_view(), name="rollback"),
    path("endpoints/<endpoint:name>/events/", views.Events.as_view(), name="events"),
    path("endpoints/<endpoint:name>/revisions/", views.Revisions.as_view(), name="revisions"),
    path("endpoints/<endpoint:name>/drift/", cluster.DriftView.as_view(), name="drift"),
    path("endpoints/<endpoint:name>/drift/heal/", cluster.Heal.as_view(), name="drift-heal"),
    path("endpoints/<endpoint:name>/drift/adopt/", cluster.Adopt.as_view(), name="drift-adopt"),
    path("endpoints/<endpoint:name>/logs/lines/", logs.LogLines.as_view(), name="log-lines"),
    path("endpoints/<endpoint:name>/logs/stream/", logs.LogStream.as_view(), name="log-stream"),
    path("endpoints/<endpoint:name>/logs/", cluster.Logs.as_view(), name="logs"),
    path("endpoints/<endpoint:name>/keys/", keys.EndpointKeys.as_view(), name="keys"),
    path("endpoints/<endpoint:name>/keys/<uuid:key_id>/", keys.EndpointKey.as_view(), name="key"),
    path(
        "endpoints/<endpoint:name>/keys/<uuid:key_id>/rotate/",
        keys.EndpointKeyRotation.as_view(),
        name="key-rotate",
    ),
    path("endpoints/<endpoint:name>/usage/", keys.EndpointKeyUsage.as_view(), name="usage"),
    *make_urls(key_groups.GROUPS),
    path("key-groups/<uuid:group_id>/keys/", key_groups.GroupKeys.as_view(), name="group-keys"),
    path(
        "key-groups/<uuid:group_id>/keys/<uuid:key_id>/",
        key_groups.GroupKey.as_view(),
        name="group-key",
    ),
    path(
        "key-groups/<uuid:group_id>/keys/<uuid:key_id>/rotate/",
        key_groups.GroupKeyRotation.as_view(),
        name="group-key-rotate",
    ),
]
