"""The shapes of the login's forms."""

from __future__ import annotations

from django.contrib.auth.forms import AuthenticationForm

from console.web.forms import Styled


class LoginForm(Styled, AuthenticationForm):
    error_messages = {
        **AuthenticationForm.error_messages,
        "invalid_login": "User name and password do not match an active account.",
    }
