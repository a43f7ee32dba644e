"""The panel beside the form which says, while one types, whether the model fits."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_POST

from console.accounts.permissions import role_required
from endpoints import machine, selectors
from endpoints.fit import look
from endpoints.forms import EndpointForm
from endpoints.spec import EndpointSpec, read


@require_POST
@role_required("operator", somewhere=True)
def fit(request: HttpRequest) -> HttpResponse:
    """Of what is typed now; a field that cannot be read yet counts as its default."""
    spec = typed_spec(request)
    context = {"report": look.look(spec) if spec.model and not spec.simulated else None}
    return render(request, "endpoints/htmx/fit.html", context)


def typed_spec(request: HttpRequest) -> EndpointSpec:
    """What is typed, over what the endpoint named in the query has that the form does not show."""
    present = selectors.endpoints(request.user).filter(name=request.GET.get("endpoint", "")).first()
    context = machine.context()
    form = EndpointForm(request.POST, spec=present.spec if present else None, context=context)
    where = present.parsed.placement if present else None
    fixed = {"placement.cluster": where.cluster} if where else {}
    return read(form.spec_data(), {**context.defaults, **fixed})[0]
