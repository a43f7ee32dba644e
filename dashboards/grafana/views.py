"""The page "Grafana export" and its downloads. Dashboards name no endpoint and no team."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_safe

from console.accounts.permissions import Somebody, allows
from dashboards.alerts.rules import rule_file
from dashboards.alerts.settings import selectors
from dashboards.grafana.export import dashboard as export
from dashboards.grafana.export.dashboard import ExportFile
from dashboards.prometheus.config import recording_rules as config_recording_rules


def files(viewer: Somebody, console_url: str) -> tuple[ExportFile, ...]:
    settings = selectors.settings() if allows(viewer, "viewer") else rule_file.DEFAULT_SETTINGS
    return export.make_files(console_url, rule_file.render(settings))


@require_safe
def page(request: HttpRequest) -> HttpResponse:
    records = [record for group in config_recording_rules.GROUPS.values() for record in group]
    context = {"boards": export.list_exports(), "records": records}
    return render(request, "dashboards/grafana.html", context)


@require_safe
def everything(request: HttpRequest) -> HttpResponse:
    exports = files(request.user, console_url(request))
    packed = export.make_zip(exports)
    return _file(packed, "emberline-grafana.zip", "application/zip")


@require_safe
def board(request: HttpRequest, uid: str) -> HttpResponse:
    exported = export.find_export(uid)
    if exported is None:
        raise Http404(uid)
    document = export.board(exported, console_url(request))
    return _file(document.text.encode(), f"{uid}.json", document.media_type)


@require_safe
def recording_rules(_request: HttpRequest) -> HttpResponse:
    return _file(
        config_recording_rules.render().encode(), "emberline-recording.yml", "application/yaml"
    )


def console_url(request: HttpRequest) -> str:
    return request.build_absolute_uri(reverse("dashboards:overview"))


def _file(body: bytes, name: str, media_type: str) -> HttpResponse:
    disposition = f'attachment; filename="{name}"'
    return HttpResponse(body, content_type=media_type, headers={"Content-Disposition": disposition})
