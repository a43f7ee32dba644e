"""Login and security pages, mounted at the root."""

from __future__ import annotations

from django.urls import path

from console.signon import confirmation
from console.signon.pages import login, security, settings, single_signon

app_name = "signon"
urlpatterns = [
    path("login/", login.LoginView.as_view(), name="login"),
    path("login/with/<slug:provider_id>/", single_signon.start, name="start"),
    path("login/with/<slug:provider_id>/back/", single_signon.callback, name="callback"),
    path("login/again/", confirmation.confirm, name="again"),
    path("login/again/with/<slug:provider_id>/", single_signon.confirm_with, name="confirm-with"),
    path("logout/", login.logout, name="logout"),
    path("profile/security/", security.security, name="security"),
    path("profile/security/link/<slug:provider_id>/", single_signon.link, name="link"),
    path("profile/security/unlink/<int:pk>/", single_signon.unlink, name="unlink"),
    path("profile/security/sessions/end/", security.sessions_end, name="sessions-end"),
    path("profile/security/sessions/<slug:key>/end/", security.session_end, name="session-end"),
    path("sign-on/", settings.overview, name="settings"),
    path("sign-on/<slug:provider_id>/test/", settings.test, name="test"),
    path("access/<int:pk>/factor/reset/", settings.factor_reset, name="factor-reset"),
    path("access/<int:pk>/sessions/end/", settings.sessions_end, name="person-sessions-end"),
]
