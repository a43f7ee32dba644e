"""/api/v1/follows/: namespaces whose objects define endpoints."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.api.bodies import read_body
from console.api.idempotency import idempotent
from endpoints.api.answers import operation
from endpoints.controller import actions, selectors


class FollowSerializer(serializers.Serializer[Any]):
    id = serializers.CharField()
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    foreign = serializers.BooleanField()
    phase = serializers.CharField()
    reason = serializers.CharField()
    message = serializers.CharField()
    objects = serializers.IntegerField(help_text="Number of followed objects.")
    seen_at = serializers.DateTimeField(allow_null=True)
    created_at = serializers.DateTimeField()
    created_by = serializers.CharField()


class NewFollowSerializer(serializers.Serializer[Any]):
    cluster = serializers.CharField()
    namespace = serializers.CharField()
    foreign = serializers.BooleanField(
        default=False, help_text="Also if the CRD was installed by others."
    )


class Follows(GenericAPIView[Any]):
    serializer_class = FollowSerializer

    @operation("List followed namespaces", FollowSerializer(many=True), tag="follows")
    def get(self, request: Request) -> Response:
        page = self.paginate_queryset(selectors.visible_follows(request.user)) or []
        return self.get_paginated_response([selectors.document(row) for row in page])

    @operation(
        "Follow a namespace",
        {201: FollowSerializer},
        400,
        409,
        request=NewFollowSerializer,
        tag="follows",
    )
    @idempotent
    def post(self, request: Request) -> Response:
        """Needs the admin role. Installs the CustomResourceDefinition if it is missing."""
        data = read_body(NewFollowSerializer, request.data)
        made = actions.follow(
            request.user, data["cluster"], data["namespace"], foreign=data["foreign"]
        )
        return _follow_response(str(made.pk), 201)


class OneFollow(APIView):
    @operation("Read a followed namespace", {200: FollowSerializer}, 404, tag="follows")
    def get(self, request: Request, follow_id: str) -> Response:
        if str(follow_id) not in {str(row.pk) for row in selectors.visible_follows(request.user)}:
            raise actions.not_followed()
        return _follow_response(follow_id)

    @operation("Stop following a namespace", {202: FollowSerializer}, 404, tag="follows")
    def delete(self, request: Request, follow_id: str) -> Response:
        """Needs the admin role. The endpoints stay and can be edited in the console again."""
        actions.unfollow(request.user, follow_id)
        return _follow_response(follow_id, 202)


def _follow_response(follow_id: str, status: int = 200) -> Response:
    follow = selectors.get(follow_id)
    if follow is None:
        raise actions.not_followed()
    return Response(selectors.document(follow), status=status)
