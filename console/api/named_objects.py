"""REST views of objects with a unique name and a generation: create, read, change, delete.

Writes can be dry runs, and changes and deletions respect If-Match. A kind declares its actions as a
`Resource` and describes its operations for the OpenAPI document.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.utils import OpenApiExample, extend_schema
from rest_framework.generics import GenericAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from console.accounts.permissions import Somebody, actor_of
from console.api import watch
from console.api.idempotency import idempotent
from console.api.parameters import DRY_RUN, IF_MATCH, is_dry_run
from console.api.preconditions import expected_generation, with_generation
from console.api.serializers import DryRunSerializer, dry_run_response, object_or_dry_run
from console.audit.record import HIDDEN
from console.core.errors import Problem, Refused, expect_object
from console.rehearsal import rehearsal


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Actions on one kind of object, and its document.

    `facts` are the fields of a dry run, `labels` their labels and effects; `secrets` are the
    write-only ones. `example_field` is named to a caller who changes nothing ("": this is allowed).
    `users` returns the users of each object by name. `existence_public` False: an unknown name is
    reported by the action, after its check of rights.
    """

    rows: Callable[[], QuerySet[Any]]
    create: Callable[[Any, Any, Mapping[str, Any]], Any]
    change: Callable[..., Any]
    delete: Callable[..., object]
    facts: Callable[[Any], dict[str, Any]]
    labels: Mapping[str, tuple[str, str]]
    secrets: Collection[str] = ()
    example_field: str = ""
    users: Callable[[Somebody], dict[str, list[str]]] | None = None
    existence_public: bool = True

    def find_or_404(self, name: str) -> Any:
        return get_object_or_404(self.rows(), name=name)


def describe_create(
    summary: str, description: str, request: Any, response: Any, examples: Sequence[OpenApiExample]
) -> Any:
    return extend_schema(
        summary=summary,
        description=description,
        parameters=[DRY_RUN],
        request=request,
        responses={200: DryRunSerializer, 201: response},
        examples=examples,
    )


def describe_change(summary: str, description: str, request: Any, response: Any, name: str) -> Any:
    return extend_schema(
        summary=summary,
        description=description,
        parameters=[IF_MATCH, DRY_RUN],
        request=request,
        responses=object_or_dry_run(f"{name}OrDryRun", response),
    )


def describe_delete(summary: str, description: str, responses: Mapping[int, Any]) -> Any:
    return extend_schema(
        summary=summary,
        description=description,
        parameters=[IF_MATCH, DRY_RUN],
        responses={200: DryRunSerializer, **responses},
    )


class ResourceView(GenericAPIView[Any]):
    resource: Resource

    def get_queryset(self) -> QuerySet[Any]:
        return self.resource.rows()

    def get_serializer_context(self) -> dict[str, Any]:
        context: dict[str, Any] = dict(super().get_serializer_context())
        if self.resource.users is not None:
            context["users"] = self.resource.users(self.request.user)
        return context

    def respond(self, name: str, status: int = 200) -> Response:
        row = self.resource.find_or_404(name)
        response = Response(self.get_serializer(row).data, status=status)
        return with_generation(response, row.generation)


class CreateView(ResourceView):
    @idempotent
    def post(self, request: Request, *_args: Any, **_kwargs: Any) -> Response:
        data = dict(expect_object(request.data))
        name, kind = data.pop("name", None), self.resource
        if is_dry_run(request):
            with rehearsal():
                made = kind.create(actor_of(request), name, data)
            return dry_run_response("create", made.name, {}, kind.facts(made), kind.labels)
        return self.respond(kind.create(actor_of(request), name, data).name, 201)


class NamedView(ResourceView):
    deleted_status = 204

    def get(self, request: Request, name: str) -> Response | StreamingHttpResponse:
        if watch.is_watch(request):
            return watch.watch_object(request, lambda: self.respond(name).data)
        return self.respond(name)

    def patch(self, request: Request, name: str) -> Response:
        data, kind = expect_object(request.data), self.resource
        if kind.example_field and not data:
            remedy = f"Send at least one field to change, such as {kind.example_field}."
            raise Refused(Problem("", None, "No changes given.", remedy, "required"))
        rehearsed = is_dry_run(request)
        before = {}
        if rehearsed or kind.existence_public:
            before = kind.facts(kind.find_or_404(name))
        expected = expected_generation(request)
        if rehearsed:
            with rehearsal():
                done = kind.change(actor_of(request), name, data, expected_generation=expected)
            anew = {key: f"{HIDDEN}, given anew" for key in kind.secrets if data.get(key)}
            after = {**kind.facts(done), **anew}
            return dry_run_response("update", name, before, after, kind.labels)
        kind.change(actor_of(request), name, data, expected_generation=expected)
        return self.respond(name)

    def delete(self, request: Request, name: str) -> Response:
        kind = self.resource
        if kind.existence_public:
            kind.find_or_404(name)
        expected = expected_generation(request)
        if is_dry_run(request):
            with rehearsal():
                kind.delete(actor_of(request), name, expected_generation=expected)
            return dry_run_response("delete", name, {}, {}, kind.labels)
        kind.delete(actor_of(request), name, expected_generation=expected)
        if self.deleted_status != 204:  # deletion continues in the background
            return self.respond(name, self.deleted_status)
        return Response(status=204)
