"""Page URLs, mounted below "/what-if/"."""

from __future__ import annotations

from django.urls import path

from dashboards.insight.whatif import views

app_name = "whatif"
_ALL = "endpoints/<endpoint:name>/"
_ONE = f"{_ALL}<uuid:run>/"
urlpatterns = [
    path(_ALL, views.endpoint, name="endpoint"),
    path(f"{_ALL}new/", views.new, name="new"),
    path(f"{_ALL}isolation/", views.isolation, name="isolation"),
    path(f"{_ALL}compare/", views.compare, name="compare"),
    path(_ONE, views.run, name="run"),
    path(f"{_ONE}cancel/", views.cancel, name="cancel"),
    path(f"{_ONE}delete/", views.delete, name="delete"),
]
