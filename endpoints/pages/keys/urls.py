"""Pages of all inference keys, mounted by console.urls under "/keys/"."""

from __future__ import annotations

from django.urls import path

from endpoints.pages.keys import views

app_name = "keys"
_GROUP = "groups/<uuid:group_id>/"
_KEY = f"{_GROUP}keys/<uuid:key_id>/"
urlpatterns = [
    path("", views.index, name="index"),
    path("groups/", views.create_group, name="group-create"),
    path(_GROUP, views.group, name="group"),
    path(f"{_GROUP}delete/", views.delete_group, name="group-delete"),
    path(f"{_GROUP}keys/", views.create_in_group, name="key-create"),
    path(f"{_KEY}edit/", views.edit_in_group, name="key-edit"),
    path(f"{_KEY}rotate/", views.rotate_in_group, name="key-rotate"),
    path(f"{_KEY}revoke/", views.revoke_in_group, name="key-revoke"),
]
