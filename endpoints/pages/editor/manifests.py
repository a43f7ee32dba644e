"""Manifest import, with a preview of the changes, and export."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from console.accounts.gate import role_required
from console.clusters import selectors as clusters
from console.core.errors import Refused
from console.core.yaml_reader import MAX_CHARACTERS
from console.web.forms import Styled
from endpoints import manifest_actions
from endpoints.manifest_actions import ManifestTarget, PlannedChange
from endpoints.manifests import documents
from endpoints.pages.head import find_endpoint
from endpoints.spec.validators import redact


class ImportForm(Styled, forms.Form):
    """Manifest text, pasted or uploaded, and the target of its objects."""

    text = forms.CharField(
        label="Manifest",
        required=False,
        strip=False,
        widget=forms.Textarea(attrs={"rows": 18, "spellcheck": "false", "class": "font-monospace"}),
        help_text="InferenceEndpointConfig or JumpStartModel as YAML or JSON; several with ---.",
    )
    file = forms.FileField(label="File", required=False)
    cluster = forms.ChoiceField(label="Cluster", required=False)
    namespace = forms.CharField(
        label="Namespace",
        required=False,
        max_length=63,
        help_text="For objects without a namespace. Empty: the default namespace of the cluster.",
    )

    def __init__(self, data: Any = None, files: Any = None) -> None:
        super().__init__(data, files)
        names = clusters.names()
        choices = [("", "This machine"), *((name, name) for name in names)]
        field = self.fields["cluster"]
        field.initial = clusters.default_cluster() or (names or [""])[0]
        if isinstance(field, forms.ChoiceField):
            field.choices = choices

    def manifest(self) -> str:
        """Return the manifest; the file takes precedence over the text."""
        upload = self.files.get("file")
        if upload is None:
            return str(self.data.get("text", ""))
        # Bounds the memory; `documents` enforces MAX_CHARACTERS.
        text: str = upload.read(4 * MAX_CHARACTERS).decode("utf-8", errors="replace")
        return text

    @property
    def where(self) -> ManifestTarget:
        return ManifestTarget(self.data.get("cluster", ""), self.data.get("namespace", "").strip())


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator", somewhere=True)
def import_manifests(request: HttpRequest) -> HttpResponseBase:
    """Preview the changes; a POST with `apply` applies them."""
    if request.method != "POST":
        return render(request, "endpoints/import.html", {"form": ImportForm()})
    form = ImportForm(request.POST, request.FILES)
    text = form.manifest()
    context: dict[str, Any] = {"form": form, "text": text, "where": form.where}
    if not form.is_valid():
        return render(request, "endpoints/import.html", context, status=400)
    try:
        if "apply" in request.POST:
            return _report_applied(request, manifest_actions.apply(request.user, text, form.where))
        planned = manifest_actions.plan(request.user, text, form.where)
    except Refused as error:
        context["errors"] = error.errors
        status = error.status_code
        return render(request, "endpoints/import.html", context, status=status)
    context["planned"] = [_plan_row(plan) for plan in planned]
    context["changes"] = any(plan.changes for plan in planned)
    return render(request, "endpoints/import.html", context)


@require_safe
def manifest(request: HttpRequest, name: str) -> HttpResponse:
    endpoint = find_endpoint(name)
    text = documents.to_yaml(manifest_actions.export_endpoint(name))
    if "download" in request.GET:
        headers = {"Content-Disposition": f'attachment; filename="{name}.yaml"'}
        return HttpResponse(text, content_type="application/yaml", headers=headers)
    return render(request, "endpoints/manifest.html", {"endpoint": endpoint, "text": text})


def _report_applied(request: HttpRequest, planned: list[PlannedChange]) -> HttpResponseBase:
    changed = [change for change in planned if change.changes]
    if not changed:
        messages.info(request, "No changes: the endpoints match the manifest.")
        return redirect("endpoints:list")
    names = ", ".join(endpoint.name for endpoint in changed)
    messages.success(request, f"Applied: {names}.")
    if len(planned) == 1:
        return redirect("endpoints:detail", planned[0].name)
    return redirect("endpoints:list")


def _plan_row(one: PlannedChange) -> dict[str, Any]:
    return {
        "planned": one,
        "changes": [
            {
                "change": change,
                "before": redact(change.path, change.before),
                "after": redact(change.path, change.after),
            }
            for change in manifest_actions.shown_changes(one)
        ],
    }
