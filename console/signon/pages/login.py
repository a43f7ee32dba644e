"""Login, second factor and logout pages; all forms work without JavaScript."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode

from allauth.mfa.base.views import AuthenticateView
from allauth.mfa.models import Authenticator
from django.conf import settings
from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.decorators import method_decorator
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from console.accounts.models import User
from console.core.counters import increment
from console.signon import factors, flow, login_limits
from console.signon.pages.forms import CodeForm, LoginForm, PasskeyFactorForm
from console.web.server.client_address import client_address, network_of
from console.web.templatetags.emberline import duration


@method_decorator([login_not_required, never_cache], name="dispatch")
class LoginView(auth_views.LoginView):
    form_class = LoginForm
    template_name = "console/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wait = login_limits.count_attempt(*_who(request, self._name()))
        if wait:
            increment("login_throttled")
            return render_too_many(request, wait, self.get_success_url())
        return super().post(request, *args, **kwargs)

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        return super().get_context_data(**kwargs) | login_methods(self.request)

    def form_valid(self, form: Any) -> HttpResponse:
        user = cast(User, form.get_user())
        if not flow.may_use_password(user.username):
            return self._without_password(form, user)
        login_limits.forgive_attempt(*_who(self.request, self._name()))
        return flow.begin_login(self.request, user, flow.LOCAL_METHOD, self.get_success_url())

    def form_invalid(self, form: Any) -> HttpResponse:
        user = User.objects.filter(username=self._name()).first()
        reason = "name" if user is None else "password" if user.is_active else "inactive"
        flow.record_refusal(self.request, user, reason)
        return super().form_invalid(form)

    def _without_password(self, form: Any, user: User) -> HttpResponse:
        """Respond as for a wrong password, so that a correct one is not revealed."""
        flow.record_refusal(self.request, user, "password login is disabled")
        form.add_error(None, form.get_invalid_login_error())
        return super().form_invalid(form)

    def _name(self) -> str:
        return self.request.POST.get("username", "")


class SecondFactorView(AuthenticateView):
    """Asks for the second factor after a correct first one."""

    form_class = CodeForm
    webauthn_form_class = PasskeyFactorForm
    template_name = "console/signon/code.html"

    def form_invalid(self, form: Any) -> HttpResponse:
        response = super().form_invalid(form)
        if form.has_error("code", "too_many_login_attempts"):
            response.status_code = 429
        return response

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        user = self.stage.login.user
        usable = factors.are_passkeys_usable(self.request) and factors.has_passkey(user)
        return {**super().get_context_data(**kwargs), "passkey": usable}


@never_cache
@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    """Log out; the provider's logout is a link, since the CSP forbids redirecting a form to it."""
    login_info = flow.login_facts(request)
    flow.log_out(request)
    if not login_info.get("end_session"):
        return redirect("signon:login")
    back = request.build_absolute_uri(reverse("signon:login"))
    query = urlencode({"client_id": login_info["client"], "post_logout_redirect_uri": back})
    mark = "&" if "?" in login_info["end_session"] else "?"
    context = {"leave": f"{login_info['end_session']}{mark}{query}"}
    return render(request, "console/signon/left.html", context)


def login_methods(request: HttpRequest) -> dict[str, Any]:
    passkeys = Authenticator.objects.filter(type=Authenticator.Type.WEBAUTHN)
    return {
        "providers": settings.OIDC_PROVIDERS,
        "break_glass": settings.SIGNON.local_login == flow.BREAK_GLASS,
        "passkey": factors.are_passkeys_usable(request) and passkeys.exists(),
    }


def render_login(request: HttpRequest, text: str, status: int, next_: str = "") -> HttpResponse:
    """Render the login page with an error."""
    context = {"form": LoginForm(request), "refused": text, "next": next_, **login_methods(request)}
    return render(request, "console/login.html", context, status=status)


def render_too_many(request: HttpRequest, wait: int, next_: str = "") -> HttpResponse:
    """Reject without revealing whether the credentials were correct."""
    text = f"Too many failed logins. Try again in {duration(wait)}."
    response = render_login(request, text, 429, next_)
    response["Retry-After"] = str(wait)
    return response


def _who(request: HttpRequest, name: str) -> tuple[str, str, str]:
    return name, network_of(client_address(request)), login_limits.known_device(request, name)
