"""REST of a kind: list, read, put, delete."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from django.urls import URLPattern, path
from drf_spectacular.utils import extend_schema, extend_schema_view
from rest_framework import serializers
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of
from console.api.parameters import IF_MATCH
from console.api.preconditions import require_match
from console.core.errors import expect_object
from console.resources.fields import ModelFields
from console.resources.kind import Kind


def make_serializers(
    fields: ModelFields[Any],
    shown: Sequence[str] = (),
    **extra: serializers.Field[Any, Any, Any, Any],
) -> tuple[type[serializers.ModelSerializer[Any]], type[serializers.ModelSerializer[Any]]]:
    """Return the serializers of a document and of a request, in which every field may be omitted.
    `shown`: further fields of a document, `extra` those of them that are not the model's.
    """
    name = fields.model.__name__
    keys = (fields.key,) if fields.key else ()
    every = {"model": fields.model, "fields": (*keys, *fields.names, *shown)}
    settable = {
        "model": fields.model,
        "fields": fields.names,
        "extra_kwargs": {field: {"required": False} for field in fields.names},
    }
    base = (serializers.ModelSerializer,)
    return (
        type(f"{name}Serializer", base, {**extra, "Meta": type("Meta", (), every)}),
        type(f"{name}WriteSerializer", base, {"Meta": type("Meta", (), settable)}),
    )


def make_urls(kind: Kind[Any], **extra: serializers.Field[Any, Any, Any, Any]) -> list[URLPattern]:
    """Return the URL patterns of a kind; `extra` as in `make_serializers`."""
    document, body = make_serializers(kind.fields, kind.shown, **extra)
    a_noun = f"a{'n' if kind.noun[0] in 'aeiou' else ''} {kind.noun}"
    tags = [f"{kind.noun}s"]

    @extend_schema(tags=tags, summary=f"List {kind.noun}s", responses=document(many=True))
    class KindList(GenericAPIView[Any]):
        serializer_class = document

        def get(self, _request: Request) -> Response:
            page = self.paginate_queryset(kind.all_rows()) or []
            return self.get_paginated_response(self.get_serializer(page, many=True).data)

    described = partial(extend_schema, tags=tags)

    @extend_schema_view(
        get=described(summary=f"Read {a_noun}", responses=document),
        put=described(
            summary=f"Add or change {a_noun}",
            parameters=[IF_MATCH],
            request=body,
            responses=document,
        ),
        delete=described(summary=f"Remove {a_noun}", parameters=[IF_MATCH], responses={204: None}),
    )
    class KindObject(APIView):
        def get(self, _request: Request, **named: str) -> Response:
            return Response(document(kind.get(named[kind.key])).data)

        def put(self, request: Request, **named: str) -> Response:
            """Omitted fields keep their values."""
            data, key = expect_object(request.data), named[kind.key]
            with self._require_match(request, key):
                return Response(document(kind.save(actor_of(request), key, data)).data)

        def delete(self, request: Request, **named: str) -> Response:
            key = named[kind.key]
            with self._require_match(request, key):
                kind.remove(actor_of(request), key)
            return Response(status=204)

        def _require_match(self, request: Request, key: str) -> AbstractContextManager[None]:
            """A missing row matches no ETag."""

            def read() -> Any:
                row = kind.find(key)
                return document(row).data if row else None

            return require_match(request, kind.stored(key), read)

    item_path = f"{kind.slug}/<str:{kind.key}>/"
    return [
        path(f"{kind.slug}/", KindList.as_view(), name=kind.slug),
        path(item_path, KindObject.as_view(), name=kind.slug[:-1]),
    ]
