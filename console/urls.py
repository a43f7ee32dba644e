"""Root URL configuration: each app adds its pages under its own prefix and its REST API under
/api/v1/.
"""

from __future__ import annotations

from django.urls import include, path

from console.catalogue import instance_types
from console.web.health import healthz, readyz

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("", include("dashboards.urls")),
    path("", include("console.web.urls")),
    path("", include("console.signon.urls")),
    path("", include("console.signon.factor_urls")),
    path("", include("console.people.urls")),
    path("audit/", include("console.audit.urls")),
    path("system/", include("console.system.urls")),
    path("instance-types/", include(instance_types.page_urls())),
    path("clusters/", include("console.clusters.urls")),
    path("endpoints/", include("endpoints.urls")),
    path("models/", include("endpoints.pages.model_catalogue")),
    path("keys/", include("endpoints.pages.keys.urls")),
    path("routing/", include("endpoints.pages.routing.urls")),
    path("playground/", include("endpoints.pages.playground.urls")),
    path("cache/", include("cachetier.urls")),
    path("benchmarks/", include("dashboards.benchmarks.urls")),
    path("routing/", include("dashboards.insight.traces.urls")),
    path("what-if/", include("dashboards.insight.whatif.urls")),
    path("advisor/", include("dashboards.insight.advisor.urls")),
    path("alerts/", include("dashboards.alerts.settings.urls")),
    path("alerts/", include("dashboards.alerts.alertmanager.urls")),
    path("alerts/", include("dashboards.alerts.cluster_objects.urls")),
    path("metrics-sources/", include("dashboards.prometheus.sources.urls")),
    path("costs/", include("dashboards.costs.urls")),
    path("dashboards/custom/", include("dashboards.custom_boards.urls")),
    path("api/v1/", include("console.api.urls")),
    path("api/v1/", include("console.people.api.urls")),
    path("api/v1/", include("console.signon.api.urls")),
    path("api/v1/", include("console.audit.api.urls")),
    path("api/v1/", include("console.system.api.urls")),
    path("api/v1/", include(instance_types.api_urls())),
    path("api/v1/", include("console.clusters.api.urls")),
    path("api/v1/", include("endpoints.api.urls")),
    path("api/v1/", include("endpoints.api.routing_urls")),
    path("api/v1/", include("cachetier.api.urls")),
    path("api/v1/", include("dashboards.api.urls")),
    path("api/v1/", include("dashboards.prometheus.sources.api.urls")),
    path("api/v1/", include("dashboards.benchmarks.api.urls")),
    path("api/v1/", include("dashboards.insight.traces.api_urls")),
    path("api/v1/", include("dashboards.insight.whatif.api.urls")),
    path("api/v1/", include("dashboards.insight.advisor.api.urls")),
    path("api/v1/", include("dashboards.costs.api.urls")),
    path("api/v1/", include("dashboards.alerts.settings.api.urls")),
    path("api/v1/", include("dashboards.alerts.alertmanager.api.urls")),
    path("api/v1/", include("dashboards.alerts.cluster_objects.api.urls")),
]

handler400 = "console.web.errors.bad_request"
handler403 = "console.web.errors.permission_denied"
handler404 = "console.web.errors.not_found"
handler500 = "console.web.errors.server_error"
