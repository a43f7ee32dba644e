"""The way in and out, mounted at the root."""

from __future__ import annotations

from django.urls import path

from console.signon import (
    views_access,
    views_confirm,
    views_login,
    views_security,
    views_settings,
    views_sso,
)

app_name = "signon"
urlpatterns = [
    path("login/", views_login.LoginView.as_view(), name="login"),
    path("login/code/", views_login.code, name="code"),
    path("login/with/<slug:provider_id>/", views_sso.start, name="start"),
    path("login/with/<slug:provider_id>/back/", views_sso.callback, name="callback"),
    path("login/again/", views_confirm.again, name="again"),
    path("login/again/with/<slug:provider_id>/", views_sso.confirm_with, name="confirm-with"),
    path("logout/", views_login.logout, name="logout"),
    path("profile/security/", views_security.security, name="security"),
    path("profile/security/factor/", views_security.factor, name="factor"),
    path("profile/security/factor/off/", views_security.factor_off, name="factor-off"),
    path("profile/security/recovery/", views_security.recovery_codes, name="recovery-codes"),
    path("profile/security/link/<slug:provider_id>/", views_sso.link, name="link"),
    path("profile/security/unlink/<int:pk>/", views_sso.unlink, name="unlink"),
    path("profile/security/sessions/end/", views_security.sessions_end, name="sessions-end"),
    path(
        "profile/security/sessions/<slug:key>/end/", views_security.session_end, name="session-end"
    ),
    path("sign-on/", views_settings.overview, name="settings"),
    path("sign-on/<slug:provider_id>/test/", views_settings.test, name="test"),
    path("access/<int:pk>/factor/reset/", views_access.factor_reset, name="factor-reset"),
    path("access/<int:pk>/sessions/end/", views_access.sessions_end, name="person-sessions-end"),
]
