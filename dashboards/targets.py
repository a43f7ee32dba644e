"""What Prometheus shall scrape, as its http_sd reads it: workers, routers, cache nodes.

Promises three queries however many there are, and nothing without the token. The service asking
is a machine, so it brings a bearer token instead of a login.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from django.conf import settings
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_safe

from cachetier import selectors as cache_selectors
from endpoints import selectors as endpoint_selectors
from routing import selectors as routing_selectors

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Target:
    """`address` is HOST:PORT; its metrics are at /metrics. Empty labels are left out."""

    address: str
    job: str
    pod: str
    namespace: str = ""
    endpoint_name: str = ""
    pool: str = ""

    def group(self) -> dict[str, object]:
        labels = {
            "job": self.job,
            "namespace": self.namespace,
            "endpoint_name": self.endpoint_name,
            "pool": self.pool,
            "pod": self.pod,
        }
        return {
            "targets": [self.address],
            "labels": {name: value for name, value in labels.items() if value},
        }


def found() -> Iterator[Target]:
    """Everything with an address, ready or not: what is down must be seen as down."""
    for worker in endpoint_selectors.prometheus_targets_workers():
        yield Target(worker.address, "vllm", worker.worker, worker.namespace, worker.endpoint)
    for router in routing_selectors.targets():
        # Its metrics carry `endpoint` themselves; `endpoint_name` lets `up` be asked alike.
        pod = f"{router.endpoint}-router-0"
        yield Target(router.address, "router", pod, router.namespace, router.endpoint)
    for node in cache_selectors.targets():
        yield Target(node.address, "l2", node.name, pool=node.tier)


def document(targets: Iterable[Target]) -> list[dict[str, object]]:
    """One group a target, in the order of their names: the same state is the same text."""
    return [
        target.group() for target in sorted(targets, key=lambda t: (t.job, t.pod)) if target.address
    ]


@login_not_required
@require_safe
def targets(request: HttpRequest) -> HttpResponse:
    expected = _token()
    if not expected:
        text = (
            "This console has no token for Prometheus yet: it is written when Emberline starts.\n"
        )
        return HttpResponse(text, status=503, content_type="text/plain")
    scheme, _, offered = request.headers.get("Authorization", "").partition(" ")
    same = hmac.compare_digest(offered.strip().encode(), expected.encode())
    if scheme.lower() != "bearer" or not same:
        text = "Bring the token of var/secrets/targets_token as a bearer token.\n"
        refused = HttpResponse(text, status=401, content_type="text/plain")
        refused["WWW-Authenticate"] = 'Bearer realm="emberline targets"'
        return refused
    return JsonResponse(document(found()), safe=False)


def _token() -> str:
    """Read each time: a token that is replaced holds at once. Empty when there is none."""
    try:
        return settings.EMBERLINE.targets_token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        log.warning("targets: the token cannot be read: %s", error.strerror)
        return ""
