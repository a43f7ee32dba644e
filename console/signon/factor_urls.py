"""Second-factor pages under the names that allauth uses."""

from __future__ import annotations

from django.urls import path

from console.signon.pages import factors, login, security

urlpatterns = [
    path("login/", login.LoginView.as_view(), name="account_login"),
    path("login/code/", login.SecondFactorView.as_view(), name="mfa_authenticate"),
    path("login/passkey/", factors.LoginWithPasskey.as_view(), name="mfa_login_webauthn"),
    path("profile/security/", security.security, name="mfa_index"),
    path("profile/security/", security.security, name="mfa_list_webauthn"),
    path("profile/security/factor/", factors.ActivateApp.as_view(), name="mfa_activate_totp"),
    path(
        "profile/security/factor/off/", factors.DeactivateApp.as_view(), name="mfa_deactivate_totp"
    ),
    path("profile/security/passkey/", factors.AddPasskey.as_view(), name="mfa_add_webauthn"),
    path(
        "profile/security/passkey/<int:pk>/remove/",
        factors.RemovePasskey.as_view(),
        name="mfa_remove_webauthn",
    ),
    path(
        "profile/security/recovery/",
        factors.RecoveryCodes.as_view(),
        name="mfa_view_recovery_codes",
    ),
    path(
        "profile/security/recovery/new/",
        factors.GenerateRecoveryCodes.as_view(),
        name="mfa_generate_recovery_codes",
    ),
]
