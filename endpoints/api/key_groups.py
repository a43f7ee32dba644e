"""/api/v1/key-groups/: keys valid for several endpoints."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from django.http import Http404
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.idempotency import idempotent
from endpoints.api.answers import REFUSALS
from endpoints.api.key_serializers import (
    GroupSerializer,
    KeyChangeSerializer,
    KeySerializer,
    NewKeySerializer,
    RotateSerializer,
    WantedGroupSerializer,
    WantedKeySerializer,
)
from endpoints.api.keys import (
    change_key,
    find_key,
    key_operation,
    rotate_key,
    split_name,
    terms_of,
    with_secret,
)
from endpoints.keys import actions, selectors
from endpoints.models import InferenceKey, KeyGroup
from endpoints.refusals import bad_body
from endpoints.spec.endpoint_spec import SpecErrors

_FIELDS = ("name", "description", "endpoints")


class Groups(GenericAPIView[KeyGroup]):
    write_somewhere = True
    serializer_class = GroupSerializer

    def get_queryset(self) -> QuerySet[KeyGroup]:
        return selectors.groups(self.request.user).order_by("name")

    @key_operation("List key groups", GroupSerializer(many=True))
    def get(self, _request: Request) -> Response:
        page = self.paginate_queryset(self.get_queryset())
        return self.get_paginated_response(GroupSerializer(page, many=True).data)

    @key_operation(
        "Create a key group", {201: GroupSerializer}, *REFUSALS, request=WantedGroupSerializer
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Keys of the group are valid for every endpoint in it. Needs the operator role for each of
        them.
        """
        return Response(GroupSerializer(_save_group(request, None)).data, status=201)


class OneGroup(GenericAPIView[KeyGroup]):
    write_somewhere = True
    serializer_class = GroupSerializer

    @key_operation("Read a key group", {200: GroupSerializer}, *REFUSALS)
    def get(self, request: Request, group_id: str) -> Response:
        return Response(GroupSerializer(_group(request, group_id)).data)

    @key_operation(
        "Change a key group", {200: GroupSerializer}, *REFUSALS, request=WantedGroupSerializer
    )
    def put(self, request: Request, group_id: str) -> Response:
        return Response(GroupSerializer(_save_group(request, str(group_id))).data)

    @key_operation("Delete a key group and its keys", {204: None}, 404)
    def delete(self, request: Request, group_id: str) -> Response:
        actions.delete_group(request.user, str(group_id))
        return Response(status=204)


class GroupKeys(GenericAPIView[InferenceKey]):
    write_somewhere = True
    serializer_class = KeySerializer

    @key_operation("List keys of a group", KeySerializer(many=True))
    def get(self, request: Request, group_id: str) -> Response:
        page = self.paginate_queryset(selectors.keys_of_group(_group(request, group_id))) or []
        return self.get_paginated_response([KeySerializer(key).data for key in page])

    @key_operation(
        "Create a key of a group", {201: NewKeySerializer}, *REFUSALS, request=WantedKeySerializer
    )
    @idempotent
    def post(self, request: Request, group_id: str) -> Response:
        """The secret is returned in this response only."""
        label, terms = split_name(request.data)
        made = actions.create_in_group(request.user, str(group_id), label, terms)
        return with_secret(made, 201)


class GroupKey(GenericAPIView[InferenceKey]):
    write_somewhere = True
    serializer_class = KeySerializer

    @key_operation("Read a key of a group", {200: KeySerializer}, *REFUSALS)
    def get(self, request: Request, group_id: str, key_id: str) -> Response:
        return Response(KeySerializer(find_key(_group(request, group_id).keys, key_id)).data)

    @key_operation(
        "Change a key of a group", {200: KeySerializer}, *REFUSALS, request=KeyChangeSerializer
    )
    def patch(self, request: Request, group_id: str, key_id: str) -> Response:
        return change_key(request, key_id, str(group_id))

    @key_operation("Revoke a key of a group", {204: None}, 404)
    def delete(self, request: Request, group_id: str, key_id: str) -> Response:
        actions.revoke(request.user, str(key_id), within=str(group_id))
        return Response(status=204)


class GroupKeyRotation(GenericAPIView[InferenceKey]):
    write_somewhere = True
    serializer_class = RotateSerializer

    @key_operation(
        "Rotate the secret of a group's key",
        {200: NewKeySerializer},
        *REFUSALS,
        request=RotateSerializer,
    )
    def post(self, request: Request, group_id: str, key_id: str) -> Response:
        return rotate_key(request, key_id, str(group_id))


def _group(request: Request, group_id: Any) -> KeyGroup:
    key_group = selectors.groups(request.user).filter(pk=group_id).first()
    if key_group is None:
        raise Http404
    return key_group


def _save_group(request: Request, group_id: str | None) -> KeyGroup:
    data = terms_of(request.data)
    for field, value in data.items():
        if field not in _FIELDS:
            remedy = f"Known fields: {', '.join(_FIELDS)}."
            raise SpecErrors([bad_body(field, value, remedy, "unknown_field")])
    return actions.save_group(
        request.user, group_id, data.get("name"), data.get("endpoints"), data.get("description", "")
    )
