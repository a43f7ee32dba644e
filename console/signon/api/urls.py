"""REST routes of sessions and second factors, mounted by console.urls under "/api/v1/"."""

from __future__ import annotations

from django.urls import path

from console.signon.api import views

app_name = "signon-api"
urlpatterns = [
    path("sessions/", views.Sessions.as_view(), name="sessions"),
    path("sessions/<slug:key>/", views.SessionView.as_view(), name="session"),
    path("users/<str:username>/sessions/", views.PersonSessions.as_view(), name="user-sessions"),
    path("users/<str:username>/factor/", views.PersonFactor.as_view(), name="user-factor"),
]
