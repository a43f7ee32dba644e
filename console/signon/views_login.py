"""The login page and the way out. Every form works without JavaScript."""

from __future__ import annotations

from typing import Any, cast

from django.contrib.auth import views as auth_views
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.utils.decorators import method_decorator
from django.views.decorators.http import require_POST

from console.accounts.models import User
from console.counters import count
from console.signon import devices, flow, throttle
from console.signon.forms import LoginForm
from console.web.client_address import client_address, network
from console.web.templatetags.emberline import duration


@method_decorator(login_not_required, name="dispatch")
class LoginView(auth_views.LoginView):
    form_class = LoginForm
    template_name = "console/login.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        wait = throttle.attempt(*self._who())
        if wait:
            count("login_throttled")
            return self._wait(wait)
        return super().post(request, *args, **kwargs)

    def form_valid(self, form: Any) -> HttpResponse:
        user = cast(User, form.get_user())
        throttle.forgive(*self._who())
        flow.finish(self.request, user, flow.LOCAL)
        response = redirect(self.get_success_url())
        devices.remember(self.request, response, user.username)
        return response

    def form_invalid(self, form: Any) -> HttpResponse:
        name = self.request.POST.get("username", "")
        user = User.objects.filter(username=name).first()
        reason = "name" if user is None else "password" if user.is_active else "inactive"
        flow.refused(self.request, user, reason)
        return super().form_invalid(form)

    def _who(self) -> tuple[str, str, str]:
        name = self.request.POST.get("username", "")
        where = network(client_address(self.request))
        return name, where, devices.known(self.request, name)

    def _wait(self, wait: int) -> HttpResponse:
        """Not a word about whether the password would have been right."""
        text = f"Too many failed logins. Wait {duration(wait)}, then try again."
        context = self.get_context_data(form=self.form_class(self.request), refused=text)
        response = self.render_to_response(context, status=429)
        response["Retry-After"] = str(wait)
        return response


@require_POST
def logout(request: HttpRequest) -> HttpResponse:
    flow.leave(request)
    return redirect("signon:login")
