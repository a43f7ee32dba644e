"""The way in and out, mounted at the root."""

from __future__ import annotations

from django.urls import path

from console.signon import views_login

app_name = "signon"
urlpatterns = [
    path("login/", views_login.LoginView.as_view(), name="login"),
    path("logout/", views_login.logout, name="logout"),
]
