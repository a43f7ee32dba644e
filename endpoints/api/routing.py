"""REST views of an endpoint's decisions, KV index, doctor and shared prompt prefixes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, TypeVar

from django.http import Http404, StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers, status
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api import watch
from console.api.bodies import read_body
from console.api.parameters import LAST_EVENT_ID, WATCH, whole_number
from console.api.serializers import ErrorSerializer
from console.web.server import sse
from endpoints import selectors as endpoint_selectors
from endpoints.pages.routing import decision_stream
from endpoints.router import prefix_names as actions
from endpoints.router import selectors
from endpoints.router.selectors import RouterReplies
from endpoints.spec.state_store import StoreOrigin
from routing.analysis.choices import OUTCOMES, DecisionFilter
from routing.client.router_reports import disagreements
from routing.doctor.findings import CheckState, Severity

T = TypeVar("T")


class RouterUnavailable(APIException):
    status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    default_code = "router_away"


AWAY = {503: ErrorSerializer}


def require_reply(reply: RouterReplies[T]) -> RouterReplies[T]:
    """Return the reply; raise RouterUnavailable if no router answered."""
    if reply.error:
        raise RouterUnavailable(reply.error)
    return reply


_LIMIT = whole_number("limit", 1, selectors.MAX_DECISIONS, 50, "Number of latest decisions.")
_FILTERS = [
    OpenApiParameter("reason", str, description="Routing reason, such as prefix_hit."),
    OpenApiParameter("worker", str, description="Chosen worker."),
    OpenApiParameter("key", str, description="ID of the inference key."),
    OpenApiParameter("model", str, description="Served model or adapter."),
    OpenApiParameter("session", str, description="Session hash, as in decisions."),
    OpenApiParameter("outcome", str, enum=[outcome for outcome in OUTCOMES if outcome]),
]


class DecisionsSerializer(serializers.Serializer[Any]):
    """The router's records; prefixes and sessions are keyed hashes. `preview`: first
    characters of the prompt, only with the endpoint field routing.prompt_preview.
    """

    decisions = serializers.ListField(child=serializers.DictField())


@extend_schema(tags=["routing"])
class Decisions(APIView):
    @extend_schema(
        summary="List routing decisions",
        operation_id="endpoints_decisions_list",
        description="Filters select among the latest `limit` decisions. With `watch`, each "
        "`status` event has the new and changed ones.",
        parameters=[_LIMIT, *_FILTERS, WATCH, LAST_EVENT_ID],
        responses={200: DecisionsSerializer, 503: ErrorSerializer},
    )
    def get(self, request: Request, name: str) -> Response | StreamingHttpResponse:
        most = int(request.query_params.get("limit", 50))
        filters = DecisionFilter.read(request.query_params)
        endpoint = endpoint_selectors.get(name)
        if watch.is_watch(request):
            poll = decision_stream.DecisionStream(
                name, filters, most, decision_stream.render_records
            ).poll
            return sse.stream(request, sse.poll_changes(poll))
        reply = require_reply(selectors.decisions(endpoint, most))
        return Response(
            {"decisions": [decision.raw for decision in reply.found if filters.takes(decision)]}
        )


@extend_schema(tags=["routing"])
class OneDecision(APIView):
    @extend_schema(
        summary="Read a routing decision with its candidates",
        responses={200: OpenApiTypes.OBJECT, 503: ErrorSerializer},
    )
    def get(self, _request: Request, name: str, number: str) -> Response:
        reply = require_reply(selectors.decision(endpoint_selectors.get(name), number))
        if reply.found is None:
            raise Http404
        return Response(reply.found.raw)


class RouterIndexSerializer(serializers.Serializer[Any]):
    """KV index of one router; null values if its strategy uses none or it did not respond."""

    name = serializers.CharField(help_text="HOST:PORT of its admin port.")
    error = serializers.CharField(allow_blank=True)
    kv_blocks = serializers.IntegerField(allow_null=True)
    kv_workers_followed = serializers.IntegerField(allow_null=True)


class KvIndexSerializer(serializers.Serializer[Any]):
    """KV block index of an endpoint. `kv` is the record of the first router that responded, null if
    its strategy uses no KV index. `stale`: why the data of `at` is not current, "" if it is.
    `routers`: each of several; `differences`: where their indexes disagree.
    """

    strategy = serializers.CharField(allow_blank=True)
    at = serializers.DateTimeField()
    stale = serializers.CharField(allow_blank=True)
    kv = serializers.DictField(allow_null=True)
    routers = RouterIndexSerializer(many=True)
    differences = serializers.ListField(child=serializers.CharField())


@extend_schema(tags=["routing"])
class KvIndex(APIView):
    @extend_schema(
        summary="Read the KV index by worker",
        description="The last known state while the router does not respond; 503 without any.",
        operation_id="endpoints_kv_index",
        responses={200: KvIndexSerializer, 503: ErrorSerializer},
    )
    def get(self, _request: Request, name: str) -> Response:
        reply = selectors.kv_index(endpoint_selectors.get(name))
        if reply.at is None:
            raise RouterUnavailable(reply.error)
        kv = reply.raw.get("kv") if reply.index is not None else None
        fields = tuple(RouterIndexSerializer().fields)
        replies = [reply.data() for reply in reply.replies]
        return Response(
            {
                "strategy": reply.strategy,
                "at": reply.at,
                "stale": reply.error,
                "kv": kv,
                "routers": [{name: reply[name] for name in fields} for reply in replies],
                "differences": reply.differences,
            }
        )


class ExchangeSerializer(serializers.Serializer[Any]):
    """A router's exchange of state with the others. `away_since`: null while it is connected."""

    id = serializers.CharField(help_text="As in the `peers` of other routers.")
    store = serializers.CharField()
    connected = serializers.BooleanField()
    error = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(
        allow_blank=True,
        help_text="Why the store is away: address, auth, certificate, database, lost, permission, "
        "protocol, timeout or tls; empty while it is connected.",
    )
    remedy = serializers.CharField(allow_blank=True)
    away_since = serializers.DateTimeField(allow_null=True)
    lag_s = serializers.FloatField(
        allow_null=True, help_text="Time of a heartbeat through the store, in seconds."
    )
    peers = serializers.ListField(child=serializers.CharField())
    failures = serializers.IntegerField(help_text="Lost connections since its start.")
    waiting_placements = serializers.IntegerField()
    lost_placements = serializers.IntegerField()
    budget_checks_alone = serializers.IntegerField()
    rejected_messages = serializers.DictField(child=serializers.IntegerField())


class RouterReportSerializer(RouterIndexSerializer):
    """Report of one router. `exchange` is null if no state store is configured."""

    strategy = serializers.CharField(allow_blank=True)
    in_flight = serializers.IntegerField(help_text="Requests of all routers that it knows of.")
    workers = serializers.DictField(child=serializers.CharField(), help_text="State by worker.")
    exchange = ExchangeSerializer(allow_null=True)


class ChosenStoreSerializer(serializers.Serializer[Any]):
    url = serializers.CharField()
    origin = serializers.ChoiceField(
        choices=[str(origin) for origin in StoreOrigin],
        help_text="endpoint: router.state_store; l2: its redis L2 cache; installation: the "
        "console's setting.",
    )


class RouterReportsSerializer(serializers.Serializer[Any]):
    """Reports of an endpoint's routers. `differences`: what the routers report differently.
    `state_store`: as configured, null for one router and without any.
    """

    state_store = ChosenStoreSerializer(allow_null=True)
    routers = RouterReportSerializer(many=True)
    differences = serializers.ListField(child=serializers.CharField())


@extend_schema(tags=["routing"])
class Routers(APIView):
    @extend_schema(
        summary="List routers with their exchange of state",
        description="A router that does not respond has its `error`, with status 200.",
        operation_id="endpoints_routers",
        responses=RouterReportsSerializer,
    )
    def get(self, _request: Request, name: str) -> Response:
        endpoint = endpoint_selectors.get(name)
        reports, store = selectors.router_reports(endpoint), selectors.state_store(endpoint)
        data = {
            "state_store": store and {"url": store.url, "origin": str(store.origin)},
            "routers": [report.data() for report in reports],
            "differences": disagreements(reports),
        }
        return Response(RouterReportsSerializer(data).data)


class FindingSerializer(serializers.Serializer[Any]):
    """Finding of the doctor. `code` is stable; `fix` states the remedy."""

    code = serializers.CharField()
    severity = serializers.ChoiceField([str(severity) for severity in Severity])
    what = serializers.CharField()
    evidence = serializers.ListField(child=serializers.CharField())
    fix = serializers.CharField()
    workers = serializers.ListField(child=serializers.CharField())


class CheckSerializer(serializers.Serializer[Any]):
    """Check of the doctor. `why`: the reason a check was skipped."""

    code = serializers.CharField()
    title = serializers.CharField()
    state = serializers.ChoiceField([str(state) for state in CheckState])
    why = serializers.CharField(allow_blank=True)


class ExaminationSerializer(serializers.Serializer[Any]):
    """Examination by the doctor. `verdict` is the worst finding's severity; the worst findings come
    first.
    """

    endpoint = serializers.CharField()
    strategy = serializers.CharField(allow_blank=True)
    workers = serializers.ListField(child=serializers.CharField())
    verdict = serializers.ChoiceField(["ok", *(str(severity) for severity in Severity)])
    seconds = serializers.FloatField()
    findings = FindingSerializer(many=True)
    checks = CheckSerializer(many=True)


@extend_schema(tags=["routing"])
class Doctor(APIView):
    @extend_schema(
        summary="Check routers, workers, KV events and tokenizers",
        description="Queries all routers and workers for at most 8 s. An unreachable router is a "
        "finding, with status 200. Evidence names the router where not all agree.",
        operation_id="endpoints_doctor",
        responses=ExaminationSerializer,
    )
    def get(self, _request: Request, name: str) -> Response:
        return Response(selectors.examine(endpoint_selectors.get(name)).data())


class PrefixGroupSerializer(serializers.Serializer[Any]):
    """Prompts with one prefix. `digest` is a keyed hash of the prefix."""

    digest = serializers.CharField()
    name = serializers.CharField(allow_blank=True)
    requests = serializers.IntegerField()
    share = serializers.FloatField()
    tokens = serializers.IntegerField(help_text="Approximate prefix length.")
    workers = serializers.DictField(
        child=serializers.IntegerField(), help_text="Requests by worker."
    )
    cached_share = serializers.FloatField(
        allow_null=True, help_text="Hit rate of these prompts; null: not reported."
    )
    preview = serializers.CharField(
        allow_blank=True,
        help_text="Text that the previews of its prompts share; empty without "
        "routing.prompt_preview.",
    )


class PrefixesSerializer(serializers.Serializer[Any]):
    requests = serializers.IntegerField(help_text="Number of evaluated requests.")
    prefixes = PrefixGroupSerializer(many=True)


class PrefixNameSerializer(serializers.Serializer[Any]):
    name = serializers.CharField(
        allow_blank=True, max_length=actions.MAX_NAME_LENGTH, help_text="Empty removes the name."
    )


class NamedSerializer(PrefixNameSerializer):
    digest = serializers.CharField()


@extend_schema(tags=["routing"])
class Prefixes(APIView):
    @extend_schema(
        summary="List shared prompt prefixes",
        description="Most shared tokens first, from the latest decisions.",
        operation_id="endpoints_prefixes_list",
        responses={200: PrefixesSerializer, **AWAY},
    )
    def get(self, _request: Request, name: str) -> Response:
        reply = require_reply(selectors.prefixes(endpoint_selectors.get(name)))
        rows = [{**asdict(prefix), "workers": dict(prefix.workers)} for prefix in reply.found]
        return Response({"requests": reply.requests, "prefixes": rows})


@extend_schema(tags=["routing"])
class OnePrefix(APIView):
    @extend_schema(
        summary="Name a prefix",
        operation_id="endpoints_prefixes_name",
        request=PrefixNameSerializer,
        responses={200: NamedSerializer, 400: ErrorSerializer},
    )
    def put(self, request: Request, name: str, digest: str) -> Response:
        wanted = read_body(PrefixNameSerializer, request.data)["name"]
        called = actions.name_prefix(request.user, name, digest, wanted)
        return Response({"digest": digest, "name": called})
