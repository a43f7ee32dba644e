"""Pages of callers' keys of all endpoints, mounted by console.urls under "/keys/"."""

from __future__ import annotations

from django.urls import path

from endpoints import views_keys

app_name = "keys"
_GROUP = "groups/<uuid:group_id>/"
_KEY = f"{_GROUP}keys/<uuid:key_id>/"
urlpatterns = [
    path("", views_keys.index, name="index"),
    path("groups/", views_keys.create_group, name="group-create"),
    path(_GROUP, views_keys.group, name="group"),
    path(f"{_GROUP}delete/", views_keys.delete_group, name="group-delete"),
    path(f"{_GROUP}keys/", views_keys.create_in_group, name="key-create"),
    path(f"{_KEY}edit/", views_keys.edit_in_group, name="key-edit"),
    path(f"{_KEY}rotate/", views_keys.rotate_in_group, name="key-rotate"),
    path(f"{_KEY}revoke/", views_keys.revoke_in_group, name="key-revoke"),
]
