"""Login forms."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib.auth.forms import AuthenticationForm, PasswordChangeForm

from console.web.forms import Styled


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


class CodeForm(Styled, forms.Form):
    code = forms.CharField(
        label="Code",
        max_length=40,
        help_text="6 digits of the authenticator app, or a recovery code.",
        widget=forms.TextInput(
            attrs={"autocomplete": "one-time-code", "autocapitalize": "none", "autofocus": True}
        ),
    )


class SetupForm(Styled, forms.Form):
    code = forms.CharField(
        label="Current code of the app",
        max_length=10,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric"}),
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
