"""REST views of /api/v1/endpoints/NAME/routing/, .../explain/ and .../chat/: routing state, dry
runs and chat.
"""

from __future__ import annotations

from typing import Any

from django.http import StreamingHttpResponse
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api import watch
from console.api.bodies import read_body
from console.api.parameters import LAST_EVENT_ID, WATCH
from console.api.serializers import ErrorSerializer
from endpoints import selectors as endpoint_selectors
from endpoints.api.routing import AWAY, require_reply
from endpoints.pages.playground import answers
from endpoints.router import selectors
from endpoints.spec.fields import STRATEGIES
from routing.prompts.conversation import APIS, ROLES, ROUTES, check_body, from_json

MESSAGES = [{"role": "user", "content": "Tell me a story"}]


class WorkerSeenSerializer(serializers.Serializer[Any]):
    """A worker as seen by the routers; with several routers, totals and the worst state."""

    id = serializers.CharField()
    url = serializers.CharField()
    state = serializers.CharField(help_text="up, draining or down.")
    in_flight = serializers.IntegerField()
    in_flight_tokens = serializers.IntegerField(
        help_text="Queued tokens, as strategies weigh them."
    )
    pace = serializers.FloatField(
        help_text="Time for the same work relative to the fastest workers; 1 up to 1.5 times."
    )
    served = serializers.IntegerField()
    failures = serializers.IntegerField()
    last_error = serializers.CharField(allow_blank=True)


class StrategySerializer(serializers.Serializer[Any]):
    """Latest requests replayed under this strategy. `why_not`: why it cannot be computed."""

    strategy = serializers.CharField()
    current = serializers.BooleanField()
    why_not = serializers.CharField(allow_blank=True)
    requests = serializers.IntegerField()
    moved = serializers.IntegerField(help_text="Requests routed to another worker.")
    tokens = serializers.IntegerField()
    known_tokens = serializers.IntegerField(
        allow_null=True, help_text="Tokens that the chosen worker had received before."
    )
    busiest = serializers.FloatField(help_text="Share of the worker with most requests.")


class RoutingSerializer(serializers.Serializer[Any]):
    """Routing of an endpoint. `note`: set if some routers did not respond."""

    strategy = serializers.CharField()
    session_key = serializers.CharField()
    routers = serializers.IntegerField()
    note = serializers.CharField(allow_blank=True)
    workers = WorkerSeenSerializer(many=True)


class StrategiesSerializer(serializers.Serializer[Any]):
    requests = serializers.IntegerField()
    strategies = StrategySerializer(many=True)


@extend_schema(tags=["routing"])
class Routing(APIView):
    @extend_schema(
        summary="Read the routing state and its workers",
        description="To change the strategy, PATCH the endpoint's `routing`.",
        operation_id="endpoints_routing",
        parameters=[WATCH, LAST_EVENT_ID],
        responses={200: RoutingSerializer, **AWAY},
    )
    def get(self, request: Request, name: str) -> Response | StreamingHttpResponse:
        if watch.is_watch(request):
            return watch.watch_object(request, lambda: _routing(name))
        return Response(_routing(name))


def _routing(name: str) -> dict[str, Any]:
    endpoint = endpoint_selectors.get(name)
    reply = require_reply(selectors.workers(endpoint))
    routing = endpoint.parsed.routing
    fields = [str(key) for key in WorkerSeenSerializer().fields]
    return {
        "strategy": routing.effective_strategy,
        "session_key": routing.session_key,
        "routers": len(selectors.routers(endpoint)),
        "note": reply.note,
        "workers": [{key: getattr(decision, key) for key in fields} for decision in reply.found],
    }


@extend_schema(tags=["routing"])
class Strategies(APIView):
    @extend_schema(
        summary="Replay the latest requests under each strategy",
        description="Uses the recorded decisions and loads, and the strategies' own code.",
        operation_id="endpoints_strategies",
        responses={200: StrategiesSerializer, **AWAY},
    )
    def get(self, _request: Request, name: str) -> Response:
        reply = require_reply(selectors.strategy_previews(endpoint_selectors.get(name)))
        fields = [str(key) for key in StrategySerializer().fields]
        rows = [{key: getattr(preview, key) for key in fields} for preview in reply.found]
        return Response({"requests": reply.requests, "strategies": rows})


class ExplainSerializer(serializers.Serializer[Any]):
    request = serializers.DictField(help_text="Request body; `model` is optional.")
    strategy = serializers.ChoiceField(
        STRATEGIES, required=False, help_text="Strategy to evaluate (the current one)."
    )
    key = serializers.CharField(
        required=False,
        allow_blank=True,
        max_length=64,
        help_text="ID of the inference key (the console's).",
    )
    session = serializers.CharField(required=False, allow_blank=True, max_length=200)


class ExplainedSerializer(serializers.Serializer[Any]):
    """One router's `ranking`, or the reason there is none."""

    error = serializers.CharField(allow_blank=True)
    ranking = serializers.DictField(allow_null=True)


class ExplanationsSerializer(serializers.Serializer[Any]):
    routers = ExplainedSerializer(many=True)


@extend_schema(tags=["routing"])
class Explain(APIView):
    write_role = "viewer"  # no worker receives the request

    @extend_schema(
        summary="Where a request would go now",
        description="The routers' own ranking. Nothing is sent to a worker, nothing is remembered.",
        operation_id="endpoints_explain",
        request=ExplainSerializer,
        responses={200: ExplanationsSerializer, 400: ErrorSerializer},
        examples=[
            OpenApiExample("A chat", value={"request": {"messages": MESSAGES}}, request_only=True)
        ],
    )
    def post(self, request: Request, name: str) -> Response:
        endpoint = endpoint_selectors.get(name)
        values = read_body(ExplainSerializer, request.data)
        body = check_body(values["request"])
        headers, fields = selectors.require_session_name(endpoint, values.get("session", ""))
        strategy, key = values.get("strategy", ""), values.get("key", "")
        words = selectors.explain(endpoint, body | fields, strategy, headers, key)
        answers = [
            {"error": word.error, "ranking": word.answer.raw if word.answer else None}
            for word in words
        ]
        return Response({"routers": answers})


class MessageSerializer(serializers.Serializer[Any]):
    role = serializers.ChoiceField(ROLES)
    content = serializers.CharField(allow_blank=True)


class ChatSerializer(serializers.Serializer[Any]):
    messages = MessageSerializer(many=True)
    api = serializers.ChoiceField(APIS, required=False)
    parameters = serializers.DictField(required=False, help_text="Such as max_tokens.")
    stop = serializers.ListField(child=serializers.CharField(), required=False)
    route = serializers.ChoiceField(
        ROUTES, required=False, help_text="Pin to the worker that this strategy chooses."
    )
    worker = serializers.CharField(required=False, help_text="Pin to this worker.")
    session = serializers.CharField(required=False)
    cold = serializers.BooleanField(
        required=False, help_text="Use a random cache salt, so that no cached tokens are used."
    )


class TokensSerializer(serializers.Serializer[Any]):
    prompt = serializers.IntegerField(allow_null=True)
    device = serializers.IntegerField()
    l1 = serializers.IntegerField()
    l2 = serializers.IntegerField()
    cache = serializers.IntegerField(help_text="Cached tokens of unknown tier.")
    computed = serializers.IntegerField(allow_null=True)
    measured = serializers.BooleanField(
        help_text="The tiers are the worker's own counts of this request; otherwise as in the "
        "router's KV index."
    )


class ChatAnswerSerializer(serializers.Serializer[Any]):
    """Response to a prompt. `error` is empty on success; times are in seconds, measured by the
    console.
    """

    text = serializers.CharField(allow_blank=True)
    endpoint = serializers.CharField()
    error = serializers.CharField(allow_blank=True)
    code = serializers.CharField(allow_blank=True)
    status = serializers.IntegerField(help_text="HTTP status of the response; 0: none.")
    worker = serializers.CharField(allow_blank=True)
    decision = serializers.CharField(allow_blank=True)
    explain_url = serializers.CharField(allow_blank=True)
    request_id = serializers.CharField(allow_blank=True)
    reason = serializers.CharField(allow_blank=True)
    reason_label = serializers.CharField(allow_blank=True)
    reason_sentence = serializers.CharField(allow_blank=True)
    miss = serializers.CharField(
        allow_blank=True, help_text="Main cause, if less than half of the prompt was cached."
    )
    route = serializers.CharField(allow_blank=True)
    cold = serializers.BooleanField()
    ttft_s = serializers.FloatField(allow_null=True)
    itl_s = serializers.FloatField(allow_null=True)
    duration_s = serializers.FloatField()
    completion_tokens = serializers.IntegerField(allow_null=True)
    expected_cached_tokens = serializers.IntegerField(allow_null=True)
    tokens = TokensSerializer()


@extend_schema(tags=["routing"])
class Chat(APIView):
    @extend_schema(
        summary="Send a chat and return the response with its measurements",
        description="For tests: uses the console's key, at most 5 minutes. Applications call the "
        "endpoint itself with their own key. An error of the endpoint is returned in `error` with "
        "status 200; an endpoint without a URL is 409.",
        operation_id="endpoints_chat",
        request=ChatSerializer,
        responses={200: ChatAnswerSerializer, 400: ErrorSerializer, 409: ErrorSerializer},
        examples=[
            OpenApiExample(
                "Cold",
                value={"messages": MESSAGES, "parameters": {"max_tokens": 32}, "cold": True},
                request_only=True,
            )
        ],
    )
    def post(self, request: Request, name: str) -> Response:
        endpoint = endpoint_selectors.get(name)
        conversation = from_json(request.data)
        answer, details = answers.respond(endpoint, conversation)
        return Response({"text": answer.text, **details})
