"""/api/v1/key-groups/: keys valid for several endpoints."""

from __future__ import annotations

from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.api.idempotency import idempotent
from console.resources.rest import Resource
from endpoints.api.answers import REFUSALS
from endpoints.api.key_serializers import GroupSerializer, KeySerializer, NewKeySerializer
from endpoints.api.keys import change_key, find_key, key_operation, rotate_key, with_secret
from endpoints.keys import actions, selectors
from endpoints.keys.bodies import (
    KeyChangeSerializer,
    RotateSerializer,
    WantedGroupSerializer,
    WantedKeySerializer,
)
from endpoints.models import InferenceKey

GROUPS = Resource(
    path="key-groups",
    key="uuid:group_id",
    noun="key group",
    tag="keys",
    about={
        "create": "Keys of the group are valid for every endpoint in it. Needs the operator role "
        "for each of\nthem.",
        "delete": "Its keys are revoked.",
    },
    document=GroupSerializer,
    new=WantedGroupSerializer,
    changed=WantedGroupSerializer,
    rows=lambda viewer: selectors.groups(viewer).order_by("name"),
    create=lambda actor, data: actions.save_group(actor, None, data),
    change=lambda actor, group_id, data: actions.save_group(actor, str(group_id), data),
    delete=lambda actor, group_id: actions.delete_group(actor, str(group_id)),
    generation=False,
    replaces=True,
    view={"write_somewhere": True},
)


class GroupKeys(GenericAPIView[InferenceKey]):
    write_somewhere = True
    serializer_class = KeySerializer

    @key_operation("List keys of a group", KeySerializer(many=True))
    def get(self, request: Request, group_id: str) -> Response:
        page = (
            self.paginate_queryset(selectors.keys_of_group(GROUPS.get(request.user, group_id)))
            or []
        )
        return self.get_paginated_response([KeySerializer(key).data for key in page])

    @key_operation(
        "Create a key of a group", {201: NewKeySerializer}, *REFUSALS, request=WantedKeySerializer
    )
    @idempotent
    def post(self, request: Request, group_id: str) -> Response:
        """The secret is returned in this response only."""
        return with_secret(actions.create_in_group(request.user, str(group_id), request.data), 201)


class GroupKey(GenericAPIView[InferenceKey]):
    write_somewhere = True
    serializer_class = KeySerializer

    @key_operation("Read a key of a group", {200: KeySerializer}, *REFUSALS)
    def get(self, request: Request, group_id: str, key_id: str) -> Response:
        return Response(
            KeySerializer(find_key(GROUPS.get(request.user, group_id).keys, key_id)).data
        )

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
