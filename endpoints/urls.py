"""Pages of this room, mounted by console.urls under "/endpoints/"."""

from __future__ import annotations

from django.urls import path

from endpoints import (
    views,
    views_cluster,
    views_detail,
    views_editor,
    views_follow,
    views_list,
    views_look,
    views_manifests,
    views_preview,
    views_tabs,
)

app_name = "endpoints"
urlpatterns = [
    path("", views_list.index, name="list"),
    path("columns/", views_list.columns, name="columns"),
    path("bulk/", views_list.bulk_confirm, name="bulk"),
    path("bulk/run/", views_list.bulk_run, name="bulk-run"),
    path("new/", views_editor.new, name="new"),
    path("followed/", views_follow.index, name="followed"),
    path("followed/add/", views_follow.add, name="follow"),
    path("followed/<uuid:follow_id>/remove/", views_follow.remove, name="unfollow"),
    path("import/", views_manifests.import_manifests, name="import"),
    path("new/look/", views_look.new, name="look-new"),
    path("new/preview/", views_preview.typed, name="preview-typed"),
    path("<endpoint:name>/", views.detail, name="detail"),
    path("<endpoint:name>/preview/", views_preview.stored, name="preview"),
    path("<endpoint:name>/manifest/", views_manifests.manifest, name="manifest"),
    path("<endpoint:name>/head/", views_tabs.head, name="head"),
    path("<endpoint:name>/workers/", views_tabs.workers, name="workers"),
    path("<endpoint:name>/cache/", views_tabs.cache, name="cache"),
    path("<endpoint:name>/configuration/", views_tabs.configuration, name="configuration"),
    path("<endpoint:name>/configuration/compare/", views_tabs.compare, name="compare"),
    path("<endpoint:name>/revisions/", views_tabs.revisions, name="revisions"),
    path("<endpoint:name>/revisions/<int:number>/", views_tabs.revision, name="revision"),
    path("<endpoint:name>/access/", views_tabs.access, name="access"),
    path("<endpoint:name>/settings/", views_tabs.settings, name="settings"),
    path("<endpoint:name>/live/", views.live, name="live"),
    path("<endpoint:name>/events/", views.events, name="events"),
    path("<endpoint:name>/logs/", views_cluster.logs, name="logs"),
    path("<endpoint:name>/logs/lines/", views_cluster.log_lines, name="log-lines"),
    path("<endpoint:name>/drift/heal/", views_cluster.heal, name="drift-heal"),
    path("<endpoint:name>/drift/adopt/", views_cluster.adopt, name="drift-adopt"),
    path("<endpoint:name>/edit/", views_editor.edit, name="edit"),
    path("<endpoint:name>/edit/look/", views_look.change, name="look"),
    path("<endpoint:name>/edit/preview/", views_preview.typed_change, name="preview-change"),
    path("<endpoint:name>/clone/", views_editor.clone, name="clone"),
    path("<endpoint:name>/scale/", views.scale, name="scale"),
    path("<endpoint:name>/pause/", views.pause, name="pause"),
    path("<endpoint:name>/resume/", views.resume, name="resume"),
    path("<endpoint:name>/delete/", views.delete, name="delete"),
    path("<endpoint:name>/abandon/", views_cluster.abandon, name="abandon"),
    path("<endpoint:name>/prompt/", views_detail.prompt, name="prompt"),
    path("<endpoint:name>/keys/", views_detail.create_key, name="key-create"),
    path("<endpoint:name>/keys/<uuid:key_id>/revoke/", views_detail.revoke_key, name="key-revoke"),
    path("<endpoint:name>/revisions/<int:number>/rollback/", views.rollback, name="rollback"),
]
