"""/api/v1/endpoints/NAME/keys/ and /usage/: keys of one endpoint and their usage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from datetime import timedelta
from typing import Any

from django.http import Http404
from django.utils import timezone
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.idempotency import idempotent
from console.api.parameters import whole_number
from endpoints import selectors
from endpoints.api.answers import REFUSALS, F, operation
from endpoints.api.key_serializers import KeySerializer, NewKeySerializer, UsageSerializer
from endpoints.keys import actions, usage
from endpoints.keys import selectors as keys_selectors
from endpoints.keys.bodies import KeyChangeSerializer, RotateSerializer, WantedKeySerializer
from endpoints.keys.storage import NewKey
from endpoints.keys.usage import KEPT_DAYS, KeyUse
from endpoints.models import InferenceKey, KeyUsage

_DAYS = whole_number("days", 1, KEPT_DAYS, 30, "Number of days.")


def key_operation(summary: str, responses: Any, *errors: int, **more: Any) -> Callable[[F], F]:
    return operation(summary, responses, *errors, tag="keys", **more)


class EndpointKeys(GenericAPIView[InferenceKey]):
    serializer_class = KeySerializer

    @key_operation("List keys of an endpoint", KeySerializer(many=True))
    def get(self, _request: Request, name: str) -> Response:
        page = self.paginate_queryset(keys_selectors.valid_keys(selectors.get(name))) or []
        return self.get_paginated_response([KeySerializer(key).data for key in page])

    @key_operation("Create a key", {201: NewKeySerializer}, *REFUSALS, request=WantedKeySerializer)
    @idempotent
    def post(self, request: Request, name: str) -> Response:
        """The secret is returned in this response only. Routers accept it within 2 seconds, on a
        cluster within 15; until then they answer 401.
        """
        return with_secret(actions.create(request.user, name, request.data), 201)


class EndpointKey(GenericAPIView[InferenceKey]):
    serializer_class = KeySerializer

    @key_operation("Read a key", {200: KeySerializer}, *REFUSALS)
    def get(self, _request: Request, name: str, key_id: str) -> Response:
        return Response(KeySerializer(find_key(selectors.get(name).keys, key_id)).data)

    @key_operation("Change a key", {200: KeySerializer}, *REFUSALS, request=KeyChangeSerializer)
    def patch(self, request: Request, name: str, key_id: str) -> Response:
        """Omitted fields keep their values. Routers apply the change within seconds, without a
        restart.
        """
        return change_key(request, key_id, name)

    @key_operation("Revoke a key", {204: None}, 404, 409)
    def delete(self, request: Request, name: str, key_id: str) -> Response:
        """Routers reject the key within seconds."""
        actions.revoke(request.user, str(key_id), within=name)
        return Response(status=204)


class EndpointKeyRotation(GenericAPIView[InferenceKey]):
    serializer_class = RotateSerializer

    @key_operation(
        "Rotate the secret of a key", {200: NewKeySerializer}, *REFUSALS, request=RotateSerializer
    )
    def post(self, request: Request, name: str, key_id: str) -> Response:
        """Name, limits and usage are kept. The new secret is returned in this response only."""
        return rotate_key(request, key_id, name)


class EndpointKeyUsage(GenericAPIView[KeyUsage]):
    serializer_class = UsageSerializer

    @key_operation("Read usage by key", {200: UsageSerializer}, *REFUSALS, parameters=[_DAYS])
    def get(self, request: Request, name: str) -> Response:
        """Hourly usage, updated every few seconds. Includes revoked keys."""
        endpoint = selectors.get(name)
        began = timezone.now() - timedelta(days=int(request.query_params.get("days", 30)))
        rows = usage.usage_since(began).filter(endpoint_name=name)
        names = keys_selectors.names_of(endpoint)
        total = usage.used(rows)
        body = {
            "endpoint": name,
            "since": began.replace(minute=0, second=0, microsecond=0),
            "total": _usage_document("", "", total),
            "keys": [
                _usage_document(key_id, names.get(key_id, ""), used)
                for key_id, used in sorted(usage.usage_by_key(rows).items())
            ],
        }
        return Response(UsageSerializer(body).data)


def with_secret(made: NewKey, status: int = 200) -> Response:
    body = {**KeySerializer(made.key).data, "key": made.clear}
    return Response(body, status=status, headers={"Cache-Control": "no-store"})


def change_key(request: Request, key_id: Any, within: str) -> Response:
    key = actions.change(request.user, str(key_id), request.data, within=within)
    return Response(KeySerializer(key).data)


def rotate_key(request: Request, key_id: Any, within: str) -> Response:
    return with_secret(actions.rotate(request.user, str(key_id), request.data, within=within))


def find_key(of: Any, key_id: Any) -> InferenceKey:
    key: InferenceKey | None = of.filter(pk=key_id, revoked_at__isnull=True).first()
    if key is None:
        raise Http404
    return key


def _usage_document(key_id: str, name: str, used: KeyUse) -> dict[str, Any]:
    document = asdict(used)
    return {"key_id": key_id, "key_name": name, "failed": document.pop("errors"), **document}
