"""Setup and removal of second factors: allauth's views, audited.

Each change ends the user's other sessions.
"""

from __future__ import annotations

from typing import Any, cast

from allauth.mfa.recovery_codes.views import GenerateRecoveryCodesView, ViewRecoveryCodesView
from allauth.mfa.totp.views import ActivateTOTPView, DeactivateTOTPView
from allauth.mfa.webauthn.views import AddWebAuthnView, LoginWebAuthnView, RemoveWebAuthnView
from django.contrib import messages
from django.contrib.auth.decorators import login_not_required
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache

from console.accounts.models import User
from console.audit.record import record
from console.signon import factors, flow, models
from console.signon.pages.forms import PasskeyForm, PasskeyLoginForm, SetupForm


class _AuditedChange:
    """Records the change in its transaction and ends the other sessions."""

    request: HttpRequest
    audit_action = ""
    audit_kind = ""
    message = ""

    @transaction.atomic
    def form_valid(self, form: Any) -> HttpResponse:
        response: HttpResponse = super().form_valid(form)  # type: ignore[misc]
        user = cast(User, self.request.user)
        changes = {"kind": self.audit_kind} if self.audit_kind else None
        record(user, self.audit_action, flow.target(user), changes)
        flow.end_sessions(user, but=models.own_session(self.request))
        if self.message:
            messages.success(self.request, self.message)
        return response


@method_decorator(never_cache, name="dispatch")
class ActivateApp(_AuditedChange, ActivateTOTPView):
    form_class = SetupForm
    template_name = "console/signon/factor.html"
    audit_action, audit_kind = "user.factor.on", "authenticator app"
    message = "Authenticator app enabled; other sessions ended."

    def form_valid(self, form: Any) -> HttpResponse:
        response = super().form_valid(form)
        factors.use_code(cast(User, self.request.user), form.cleaned_data["code"])
        self.request.session.pop(SetupForm.session_key)
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        context = super().get_context_data(**kwargs)
        secret = context["form"].secret
        user = cast(User, self.request.user)
        return context | {
            "secret": " ".join(secret[index : index + 4] for index in range(0, len(secret), 4)),
            "picture": context["totp_svg"][context["totp_svg"].index("<svg") :],
            "demanded": flow.must_have_factor(self.request, user),
            "passkeys_usable": factors.are_passkeys_usable(self.request),
        }


class DeactivateApp(_AuditedChange, DeactivateTOTPView):
    http_method_names = ["post"]
    audit_action, audit_kind = "user.factor.off", "authenticator app"
    message = "Authenticator app disabled; other sessions ended."


@method_decorator(never_cache, name="dispatch")
class AddPasskey(_AuditedChange, AddWebAuthnView):
    form_class = PasskeyForm
    template_name = "console/signon/passkey.html"
    audit_action, audit_kind = "user.factor.on", "passkey"
    message = "Passkey added; other sessions ended."


class RemovePasskey(_AuditedChange, RemoveWebAuthnView):
    http_method_names = ["post"]
    audit_action, audit_kind = "user.factor.off", "passkey"
    message = "Passkey removed; other sessions ended."


class GenerateRecoveryCodes(_AuditedChange, GenerateRecoveryCodesView):
    http_method_names = ["post"]
    audit_action = "user.factor.recovery_codes"

    def form_invalid(self, form: Any) -> HttpResponse:
        """Report that there is no factor that codes could replace."""
        messages.error(self.request, " ".join(form.non_field_errors()))
        return redirect("signon:security")


@method_decorator(never_cache, name="dispatch")
class RecoveryCodes(ViewRecoveryCodesView):
    """Shows new codes once."""

    template_name = "console/signon/recovery_codes.html"


@method_decorator(login_not_required, name="dispatch")
class LoginWithPasskey(LoginWebAuthnView):
    """Logs in with a passkey alone: a GET of JSON starts it, a POST finishes it."""

    form_class = PasskeyLoginForm
