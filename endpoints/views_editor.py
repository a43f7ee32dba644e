"""Pages where an endpoint is written: a new one, a copy, a change of one that runs.

Promises that nothing typed is lost by a refusal. Thin over `actions`, which judges.
"""

from __future__ import annotations

from django.contrib import messages
from django.http import HttpRequest, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from console.accounts.permissions import role_required
from endpoints import actions, machine
from endpoints.forms import EndpointForm
from endpoints.refusals import RefusalError
from endpoints.spec import SpecErrors
from endpoints.views_detail import found, generation_of


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def new(request: HttpRequest) -> HttpResponseBase:
    context = machine.context()
    form = EndpointForm(request.POST if request.method == "POST" else None, context=context)
    if request.method == "POST" and "drawn" not in request.GET:
        try:
            made = actions.create(request.user, form.spec_data(), note=request.POST.get("note", ""))
        except SpecErrors as error:
            form.refuse(error.errors)
        else:
            messages.success(request, f"{made.name} is accepted. Its steps are shown below.")
            return redirect(made)
    status = 400 if form.errors else 200
    return render(request, "endpoints/form.html", {"form": form, "machine": context}, status=status)


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def edit(request: HttpRequest, name: str) -> HttpResponseBase:
    endpoint = found(name)
    context = machine.context(updating=name)
    form = EndpointForm(
        request.POST if request.method == "POST" else None,
        spec=endpoint.spec,
        context=context,
    )
    status = 200
    if request.method == "POST":
        try:
            actions.update(
                request.user,
                name,
                form.spec_data(),
                expected_generation=generation_of(request),
                note=request.POST.get("note", ""),
            )
        except (SpecErrors, RefusalError) as error:
            form.refuse(error.errors)
            status = getattr(error, "status_code", 400)
        else:
            messages.success(request, f"{name} is being changed.")
            return redirect(endpoint)
    page = {"form": form, "machine": context, "endpoint": endpoint}
    return render(request, "endpoints/form.html", page, status=status)
