"""Forms whose values an action validates, and the views around them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme

from console.core.errors import Refused
from console.web.forms import ActionForm

GET_OR_POST = ["GET", "HEAD", "POST"]
Found = TypeVar("Found")


def posted(request: HttpRequest) -> Any:
    """Return the submitted values, None if the form is only shown."""
    return request.POST if request.method == "POST" else None


def save_or_show(
    request: HttpRequest,
    form: ActionForm,
    save: Callable[[], HttpResponse],
    template: str,
    context: Mapping[str, Any],
) -> HttpResponseBase:
    """Return the redirect of `save` if the form was submitted and accepted, else the page."""
    status = 200
    if request.method == "POST":
        try:
            return save()
        except Refused as refused:
            form.refuse(refused.errors)
            status = refused.status_code
    return render(request, template, {"form": form, **context}, status=status)


def done(request: HttpRequest, text: str, to: str, *args: str) -> HttpResponse:
    messages.success(request, text)
    return redirect(to, *args)


def back_or(request: HttpRequest, to: str) -> HttpResponse:
    """Redirect to the page of this console named by `next`, else to `to`."""
    target = request.POST.get("next", "")
    if url_has_allowed_host_and_scheme(target, allowed_hosts=None):
        return HttpResponseRedirect(target)  # `redirect` would take a word for a URL's name
    return redirect(to)


def find_or_404(find: Callable[[], Found]) -> Found:
    try:
        return find()
    except Refused as refused:
        raise Http404(str(refused)) from refused


def yaml_file(name: str, text: str) -> HttpResponse:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(text, content_type="application/yaml", headers=headers)
