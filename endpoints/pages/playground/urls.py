"""Playground URLs, mounted below "/playground/"."""

from __future__ import annotations

from django.urls import path

from endpoints.pages.playground import comparison, views

app_name = "playground"
urlpatterns = [
    path("", views.index, name="index"),
    path("prompts/", comparison.page, name="prompts"),
    path("endpoints/<endpoint:name>/", views.endpoint, name="endpoint"),
    path("endpoints/<endpoint:name>/chat/", views.chat, name="chat"),
    path("endpoints/<endpoint:name>/code/", views.code, name="code"),
]
