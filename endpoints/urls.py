"""Routes of endpoint pages, mounted by console.urls under "/endpoints/"."""

from __future__ import annotations

from django.urls import path

from endpoints.controller import views as controller_views
from endpoints.pages.detail import cluster_views, tabs, views
from endpoints.pages.editor import feedback, manifests
from endpoints.pages.editor import views as editor_views
from endpoints.pages.keys import views as keys_views
from endpoints.pages.list import views as list_views

app_name = "endpoints"
urlpatterns = [
    path("", list_views.index, name="list"),
    path("columns/", list_views.columns, name="columns"),
    path("bulk/", list_views.bulk_confirm, name="bulk"),
    path("bulk/run/", list_views.bulk_run, name="bulk-run"),
    path("new/", editor_views.new, name="new"),
    path("followed/", controller_views.index, name="followed"),
    path("followed/add/", controller_views.add, name="follow"),
    path("followed/<uuid:follow_id>/remove/", controller_views.remove, name="unfollow"),
    path("import/", manifests.import_manifests, name="import"),
    path("new/look/", feedback.new, name="look-new"),
    path("new/models/", editor_views.model_options, name="model-options"),
    path("new/model/", editor_views.model_facts, name="model-facts"),
    path("new/preview/", feedback.preview_typed, name="preview-typed"),
    path("<endpoint:name>/", views.detail, name="detail"),
    path("<endpoint:name>/preview/", feedback.preview_stored, name="preview"),
    path("<endpoint:name>/manifest/", manifests.manifest, name="manifest"),
    path("<endpoint:name>/head/", tabs.head, name="head"),
    path("<endpoint:name>/workers/", tabs.workers, name="workers"),
    path("<endpoint:name>/cache/", tabs.cache, name="cache"),
    path("<endpoint:name>/configuration/", tabs.configuration, name="configuration"),
    path("<endpoint:name>/configuration/compare/", tabs.compare, name="compare"),
    path("<endpoint:name>/revisions/", tabs.revisions, name="revisions"),
    path("<endpoint:name>/revisions/<int:number>/", tabs.revision, name="revision"),
    path("<endpoint:name>/access/", keys_views.access, name="access"),
    path("<endpoint:name>/settings/", tabs.settings, name="settings"),
    path("<endpoint:name>/live/", views.live, name="live"),
    path("<endpoint:name>/events/", tabs.events, name="events"),
    path("<endpoint:name>/logs/", cluster_views.logs, name="logs"),
    path("<endpoint:name>/logs/lines/", cluster_views.log_lines, name="log-lines"),
    path("<endpoint:name>/drift/heal/", cluster_views.heal, name="drift-heal"),
    path("<endpoint:name>/drift/adopt/", cluster_views.adopt, name="drift-adopt"),
    path("<endpoint:name>/edit/", editor_views.edit, name="edit"),
    path("<endpoint:name>/edit/look/", feedback.change, name="look"),
    path("<endpoint:name>/edit/preview/", feedback.typed_change, name="preview-change"),
    path("<endpoint:name>/clone/", editor_views.clone, name="clone"),
    path("<endpoint:name>/scale/", views.scale, name="scale"),
    path("<endpoint:name>/move/", tabs.move, name="move"),
    path("<endpoint:name>/pause/", views.pause, name="pause"),
    path("<endpoint:name>/resume/", views.resume, name="resume"),
    path("<endpoint:name>/delete/", views.delete, name="delete"),
    path("<endpoint:name>/abandon/", cluster_views.abandon, name="abandon"),
    path("<endpoint:name>/prompt/", views.prompt, name="prompt"),
    path("<endpoint:name>/keys/", keys_views.create, name="key-create"),
    path("<endpoint:name>/keys/<uuid:key_id>/edit/", keys_views.edit, name="key-edit"),
    path("<endpoint:name>/keys/<uuid:key_id>/rotate/", keys_views.rotate, name="key-rotate"),
    path("<endpoint:name>/keys/<uuid:key_id>/revoke/", keys_views.revoke, name="key-revoke"),
    path("<endpoint:name>/revisions/<int:number>/rollback/", views.rollback, name="rollback"),
]
