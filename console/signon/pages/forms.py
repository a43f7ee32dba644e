"""Login forms."""

from __future__ import annotations

from typing import Any, cast

from allauth.core import context
from allauth.mfa.base.forms import AuthenticateForm
from allauth.mfa.totp.forms import ActivateTOTPForm
from allauth.mfa.totp.internal.auth import clear_totp_secret
from allauth.mfa.webauthn.forms import (
    AddWebAuthnForm,
    AuthenticateWebAuthnForm,
    LoginWebAuthnForm,
    ReauthenticateWebAuthnForm,
)
from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm

from console.core.counters import increment
from console.signon import factors, flow, login_limits
from console.web.forms import Styled
from console.web.templatetags.emberline import duration


class LoginForm(Styled, AuthenticationForm):
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "User name and password do not match an active account.",
    }


class ChangePasswordForm(Styled, PasswordChangeForm):
    revoke_tokens = forms.BooleanField(
        label="Also revoke my API tokens",
        required=False,
        help_text="If others may know the password. Clients using the tokens lose access.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # The page has more than the password field, so no autofocus.
        self.fields["old_password"].widget.attrs.pop("autofocus", None)

    def clean_new_password1(self) -> str:
        new = self.cleaned_data.get("new_password1", "")
        if new and new == self.cleaned_data.get("old_password"):
            raise forms.ValidationError(
                "The new password equals the current one. Use another password."
            )
        return str(new)


class CodeForm(Styled, AuthenticateForm):
    """Code at the login, counted by user name: the visitor has the password."""

    code = forms.CharField(
        label="Code",
        max_length=40,
        help_text="6 digits of the authenticator app, or a recovery code.",
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autocapitalize": "none", "autofocus": True}
        ),
    )

    def clean_code(self) -> str:
        code = str(self.cleaned_data["code"])
        who = (f"{self.user.username} (code)", "", f"code-{self.user.pk}")
        wait = login_limits.count_attempt(*who)
        if wait:
            increment("login_throttled")
            flow.record_refusal(context.request, self.user, "too many codes")
            text = f"Too many failed logins. Try again in {duration(wait)}."
            raise forms.ValidationError(text, code="too_many_login_attempts")
        authenticator = factors.use_code(self.user, code)
        if authenticator is None:
            flow.record_refusal(context.request, self.user, "second factor")
            raise factors.FactorAdapter().validation_error("incorrect_code")
        login_limits.forgive_attempt(*who)
        self.authenticator = authenticator
        return code


class SetupForm(Styled, ActivateTOTPForm):
    """Confirms a new TOTP secret, which the session keeps encrypted until then."""

    session_key = "signon_setup"
    code = forms.CharField(
        label="Current code of the app",
        max_length=10,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        session = context.request.session
        clear_totp_secret(context.request)  # allauth's copy is not encrypted
        adapter = factors.FactorAdapter()
        if self.is_bound and self.session_key in session:
            self.secret = adapter.decrypt(session[self.session_key])
        session[self.session_key] = adapter.encrypt(self.secret)


class _PasskeyInput:
    """Rejects credentials that raise in the parser: missing fields, invalid base64 or CBOR."""

    def full_clean(self) -> None:
        form = cast(forms.Form, self)
        try:
            super().full_clean()  # type: ignore[misc]
        except (ValueError, TypeError, LookupError):
            form.add_error("credential", factors.FactorAdapter().validation_error("incorrect_code"))


class PasskeyLoginForm(_PasskeyInput, LoginWebAuthnForm):
    """Passkey instead of user name and password."""


class PasskeyFactorForm(_PasskeyInput, AuthenticateWebAuthnForm):
    """Passkey as the second factor of a login."""


class PasskeyConfirmForm(_PasskeyInput, ReauthenticateWebAuthnForm):
    """Passkey of a logged-in user who confirms an action."""


class PasskeyForm(_PasskeyInput, Styled, AddWebAuthnForm):
    credential = forms.JSONField(
        widget=forms.HiddenInput,
        error_messages={"required": "The browser sent no passkey. Click Add."},
    )
    name = forms.CharField(
        label="Name", required=False, max_length=60, help_text="Where the passkey is stored."
    )
    passwordless = forms.BooleanField(
        label="Log in without user name and password",
        required=False,
        initial=True,
        help_text="Needs a device that stores passkeys. Otherwise it replaces the code only.",
    )


class ConfirmForm(Styled, forms.Form):
    again_password = forms.CharField(
        label="Password",
        widget=forms.PasswordInput(attrs={"autocomplete": "current-password", "autofocus": True}),
        strip=False,
    )
    again_code = forms.CharField(
        label="Code",
        max_length=40,
        help_text="From the authenticator app, or a recovery code.",
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code"}),
    )

    def __init__(self, *args: Any, password: bool, code: bool, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if not password:
            del self.fields["again_password"]
        if not code:
            del self.fields["again_code"]
