"""REST routes of the audit log, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.audit.api import views

app_name = "audit-api"
urlpatterns = [path("audit/", views.Audit.as_view(), name="list")]
