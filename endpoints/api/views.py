"""/api/v1/endpoints/: list, create, read, update and delete endpoints.

A change may name the expected generation, as `If-Match` with an ETag (412 if the endpoint has
changed since) or as `generation` in the body (409). Nothing is changed then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import Q, QuerySet
from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiParameter
from rest_framework.generics import GenericAPIView, ListAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api import watch
from console.api.idempotency import idempotent
from console.api.parameters import (
    DRY_RUN,
    IF_MATCH,
    LAST_EVENT_ID,
    WATCH,
    Filter,
    is_dry_run,
    read_flag,
)
from console.api.preconditions import expected_generation
from console.core.errors import Problem, Refused
from endpoints import abandonment, actions, selectors
from endpoints.api import serializers
from endpoints.api.answers import (
    CHANGED,
    REFUSALS,
    REMOVED,
    endpoint_response,
    operation,
    parse_change,
    run_verb,
    split_options,
)
from endpoints.api.serializers import (
    AbandonedSerializer,
    EndpointSerializer,
    EventSerializer,
    NewEndpointSerializer,
    RevisionSerializer,
    WishSerializer,
    WouldSerializer,
)
from endpoints.choices import Phase
from endpoints.models import Endpoint, EndpointEvent, Revision
from endpoints.spec.fields import STRATEGIES


def _phase_filter(value: str) -> Q:
    """Return the filter for a phase; Deleting matches from the deletion request on."""
    if value == Phase.DELETING:
        return Q(deleted_at__isnull=False)
    return Q(deleted_at__isnull=True, status__phase=value)


FILTERS = (
    Filter("search", ("name__icontains", "spec__model__icontains"), "Part of name or model."),
    Filter("phase", _phase_filter, "Filter by phase.", choices=[str(phase) for phase in Phase]),
    Filter(
        "strategy",
        selectors.uses_strategy,
        "Filter by the strategy in effect: roundrobin with routing disabled.",
        choices=STRATEGIES,
    ),
    Filter("cluster", "spec__placement__cluster", "Filter by cluster."),
    Filter("team", "team__slug", "Filter by team slug."),
    Filter("model", "spec__model", "Filter by model, exact."),
)


_ABANDON = OpenApiParameter(
    "abandon",
    bool,
    description="For a permanently lost cluster: delete the endpoint from the console only. "
    "Rejected while the cluster responds. Remaining objects have the label "
    "emberline.dev/owner=endpoint.NAME.",
)


class Endpoints(GenericAPIView[Endpoint]):
    write_somewhere = True
    serializer_class = EndpointSerializer

    filters = FILTERS

    def get_queryset(self) -> QuerySet[Endpoint]:
        return selectors.with_workers(self.request.user)

    @operation("List endpoints", EndpointSerializer(many=True), parameters=[WATCH, LAST_EVENT_ID])
    def get(self, request: Request) -> Response | StreamingHttpResponse:
        """Sorted by name. A watch returns all matches, without paging."""
        if watch.is_watch(request):
            return watch.watch_list(request, self._by_name)
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset())) or []
        return self.get_paginated_response([selectors.document(endpoint) for endpoint in page])

    def _by_name(self) -> dict[str, Any]:
        queryset = self.filter_queryset(self.get_queryset())
        return {endpoint.name: selectors.document(endpoint) for endpoint in queryset}

    @operation(
        "Create an endpoint",
        {200: WouldSerializer, 201: EndpointSerializer},
        400,
        parameters=[DRY_RUN],
        request=NewEndpointSerializer,
        examples=serializers.NEW_ENDPOINT,
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Returns immediately; `phase` shows the progress. Without `team` the endpoint has no team,
        or your team if you may create endpoints for that team only.
        """
        data, options = split_options(request.data, "note", "team")
        return run_verb(request, "", actions.create, data, status=201, **options)


class OneEndpoint(GenericAPIView[Endpoint]):
    serializer_class = EndpointSerializer

    @operation(
        "Read an endpoint", {200: EndpointSerializer}, 404, parameters=[WATCH, LAST_EVENT_ID]
    )
    def get(self, request: Request, name: str) -> Response | StreamingHttpResponse:
        if watch.is_watch(request):
            return watch.watch_object(
                request, lambda: selectors.document(selectors.get_with_workers(name, request.user))
            )
        return endpoint_response(name)

    @operation(
        "Replace an endpoint's spec",
        {200: CHANGED},
        *REFUSALS,
        parameters=[IF_MATCH, DRY_RUN],
        request=WishSerializer,
    )
    def put(self, request: Request, name: str) -> Response:
        """Omitted fields get their defaults."""
        return _write(request, name, _replace)

    @operation(
        "Change some fields of an endpoint",
        {200: CHANGED},
        *REFUSALS,
        parameters=[IF_MATCH, DRY_RUN],
        request=WishSerializer(partial=True),
    )
    def patch(self, request: Request, name: str) -> Response:
        """Omitted fields keep their values."""
        return _write(request, name, actions.patch)

    @operation(
        "Delete an endpoint",
        {200: REMOVED, 202: EndpointSerializer},
        *REFUSALS,
        parameters=[IF_MATCH, DRY_RUN, _ABANDON],
    )
    def delete(self, request: Request, name: str) -> Response:
        """Returns immediately; the endpoint is Deleting until nothing of it is left, then 404. An
        abandoned endpoint is removed at once (200); the response lists what may be left.
        """
        generation = expected_generation(request)
        if read_flag(request, "abandon"):
            if is_dry_run(request):
                text, remedy = "An abandon has no dry run.", "Omit one of the two."
                raise Refused(Problem("dry_run", True, text, remedy, "not_with_abandon"))
            left = abandonment.abandon(request.user, name, expected_generation=generation)
            return Response(AbandonedSerializer(left).data)
        return run_verb(
            request, name, actions.delete, name, expected_generation=generation, status=202
        )


@operation("List events, latest first")
class Events(ListAPIView[EndpointEvent]):
    serializer_class = EventSerializer

    def get_queryset(self) -> QuerySet[EndpointEvent]:
        if getattr(self, "swagger_fake_view", False):
            return EndpointEvent.objects.none()
        return selectors.events(selectors.get(self.kwargs["name"]))


@operation("List revisions, latest first")
class Revisions(ListAPIView[Revision]):
    serializer_class = RevisionSerializer

    def get_queryset(self) -> QuerySet[Revision]:
        if getattr(self, "swagger_fake_view", False):
            return Revision.objects.none()
        return selectors.revisions(selectors.get(self.kwargs["name"]))


def _replace(actor: actions.Actor, name: str, data: Any, **more: Any) -> Endpoint:
    selectors.get(name)
    return actions.update(actor, name, data, **more)


def _write(request: Request, name: str, verb: Callable[..., Endpoint]) -> Response:
    data, generation, note = parse_change(request)
    return run_verb(request, name, verb, name, data, expected_generation=generation, note=note)
