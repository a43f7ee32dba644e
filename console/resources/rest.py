"""REST of objects that actions create, change and delete.

Creating is idempotent, writes can be dry runs, and changes and deletions respect If-Match.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from django.db.models import QuerySet
from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path
from drf_spectacular.utils import OpenApiExample, extend_schema, extend_schema_view
from rest_framework.generics import GenericAPIView
from rest_framework.mixins import ListModelMixin
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.permissions import actor_of, require
from console.api import watch
from console.api.idempotency import idempotent
from console.api.parameters import DRY_RUN, IF_MATCH, LAST_EVENT_ID, WATCH, Filter, is_dry_run
from console.api.preconditions import expected_generation, require_match, with_generation
from console.api.serializers import (
    DryRunSerializer,
    ErrorSerializer,
    dry_run_response,
    object_or_dry_run,
)
from console.audit.record import HIDDEN
from console.core.errors import Problem, Refused, expect_object
from console.rehearsal import rehearsal

_WATCHED_LIST = "Sorted by name. A watch returns all filtered items without pagination."


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """Objects of one kind, their documents and the actions on them.

    `path`: of the list. `key`: converter and name of the path segment that names an object: its
    column, or "uuid" for the primary key. `words`: for creating and deleting. `about`: what the
    OpenAPI document says of "list", "read", "create", "change" and "delete". `find(viewer, key)`
    reads one object, default from `rows(viewer)`. `context(viewer)`: for the serializer.

    `facts` returns the fields that a dry run compares, `labels` their labels and effects; without
    labels there are no dry runs. `secrets` are write-only fields. `example_field` is named to a
    caller who changes nothing ("": this is allowed).

    `platform`: reading needs a role on the whole platform. `generation`: objects have one, which
    changes and deletions expect; otherwise If-Match is compared with the document. `watched`: reads
    can be streams. `in_background`: deletion continues after the response. `replaces`: a change is
    a PUT. `view`: attributes of the views, such as `write_role`.
    """

    path: str
    key: str = "slug:name"
    noun: str
    tag: str
    words: tuple[str, str] = ("Create", "Delete")
    about: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[OpenApiExample] = ()
    document: Any
    new: Any
    changed: Any
    rows: Callable[[Any], QuerySet[Any]]
    find: Callable[[Any, Any], Any] | None = None
    context: Callable[[Any], dict[str, Any]] = lambda _viewer: {}
    filters: Sequence[Filter] = ()
    create: Callable[[Any, dict[str, Any]], Any]
    change: Callable[..., Any]
    delete: Callable[..., object]
    facts: Callable[[Any], dict[str, Any]] = lambda _row: {}
    labels: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    secrets: Collection[str] = ()
    example_field: str = ""
    platform: bool = False
    generation: bool = True
    watched: bool = False
    in_background: bool = False
    replaces: bool = False
    view: Mapping[str, Any] = field(default_factory=dict)

    def get(self, viewer: Any, key: Any) -> Any:
        if self.platform:
            require(viewer, "viewer")
        if self.find is not None:
            return self.find(viewer, key)
        return get_object_or_404(self.rows(viewer), **{self._column: key})

    def key_of(self, row: Any) -> Any:
        return getattr(row, self._column)

    @property
    def _column(self) -> str:
        converter, _, name = self.key.partition(":")
        return "pk" if converter == "uuid" else name

    def serialize(self, request: Request, row: Any) -> Any:
        context = {"request": request, **self.context(request.user)}
        return self.document(row, context=context).data

    def respond(self, request: Request, key: Any, status: int = 200) -> Response:
        row = self.get(request.user, key)
        response = Response(self.serialize(request, row), status=status)
        return with_generation(response, row.generation) if self.generation else response

    @contextmanager
    def expected(self, request: Request, row: Any) -> Iterator[dict[str, Any]]:
        """Yield the generation that a change expects, or check If-Match against the document."""
        if self.generation:
            yield {"expected_generation": expected_generation(request)}
            return

        def read() -> Any:
            return self.serialize(request, self.get(request.user, self.key_of(row)))

        with require_match(request, type(row)._default_manager.filter(pk=row.pk), read):
            yield {}

    def describe(self, operation: str, summary: str, **more: Any) -> Any:
        default = _WATCHED_LIST if operation == "list" and self.watched else None
        about = self.about.get(operation, default)
        return extend_schema(tags=[self.tag], summary=summary, description=about, **more)


def named(create: Callable[[Any, Any, Mapping[str, Any]], Any]) -> Callable[[Any, Any], Any]:
    """Return the action for a body that contains the name."""
    return lambda actor, data: create(
        actor, data.get("name"), {key: value for key, value in data.items() if key != "name"}
    )


def make_urls(kind: Resource) -> list[URLPattern]:
    """Return the URL patterns of the list and of one object."""
    a_noun = f"a{'n' if kind.noun[0] in 'aeiou' else ''} {kind.noun}"
    watches = [WATCH, LAST_EVENT_ID] if kind.watched else []
    rehearsals = [DRY_RUN] if kind.labels else []
    dry_run = {200: DryRunSerializer} if kind.labels else {}
    either = f"{kind.noun.title().replace(' ', '')}OrDryRun"

    @extend_schema_view(
        get=kind.describe("list", f"List {kind.noun}s", parameters=watches),
        post=kind.describe(
            "create",
            f"{kind.words[0]} {a_noun}",
            parameters=rehearsals,
            request=kind.new,
            responses={**dry_run, 201: kind.document, 404: ErrorSerializer},
            examples=kind.examples,
        ),
    )
    class ResourceList(ListModelMixin, GenericAPIView[Any]):
        serializer_class = kind.document
        filters = kind.filters

        def get_queryset(self) -> QuerySet[Any]:
            return kind.rows(self.request.user)

        def get_serializer_context(self) -> dict[str, Any]:
            return {**super().get_serializer_context(), **kind.context(self.request.user)}

        def get(self, request: Request, *_args: Any, **_named: Any) -> Any:
            if kind.platform:
                require(actor_of(request), "viewer")
            if kind.watched and watch.is_watch(request):
                return watch.watch_list(request, self._rows_by_name)
            return self.list(request)

        def _rows_by_name(self) -> dict[str, Any]:
            rows = self.filter_queryset(self.get_queryset())
            return {row["name"]: row for row in self.get_serializer(rows, many=True).data}

        @idempotent
        def post(self, request: Request, *_args: Any, **_named: Any) -> Response:
            actor, data = actor_of(request), dict(expect_object(request.data))
            if is_dry_run(request):
                with rehearsal():
                    made = kind.create(actor, data)
                return _dry_run(kind, "create", made, {}, kind.facts(made))
            return kind.respond(request, kind.key_of(kind.create(actor, data)), 201)

    describe_change = kind.describe(
        "change",
        f"{'Replace' if kind.replaces else 'Change'} {a_noun}",
        parameters=[IF_MATCH, *rehearsals],
        request=kind.changed,
        responses=object_or_dry_run(either, kind.document) if kind.labels else kind.document,
    )

    class ResourceObject(APIView):
        @kind.describe("read", f"Read {a_noun}", parameters=watches, responses=kind.document)
        def get(self, request: Request, **segment: Any) -> Response | StreamingHttpResponse:
            (key,) = segment.values()
            if kind.watched and watch.is_watch(request):
                return watch.watch_object(request, lambda: kind.respond(request, key).data)
            return kind.respond(request, key)

        @kind.describe(
            "delete",
            f"{kind.words[1]} {a_noun}",
            parameters=[IF_MATCH, *rehearsals],
            responses={**dry_run, **({202: kind.document} if kind.in_background else {204: None})},
        )
        def delete(self, request: Request, **segment: Any) -> Response:
            (key,) = segment.values()
            row = kind.get(request.user, key)
            with kind.expected(request, row) as expected:
                act = partial(kind.delete, actor_of(request), key, **expected)
                if is_dry_run(request):
                    with rehearsal():
                        act()
                    return _dry_run(kind, "delete", row, {}, {})
                act()
            return kind.respond(request, key, 202) if kind.in_background else Response(status=204)

    @describe_change
    def change(_view: APIView, request: Request, **segment: Any) -> Response:
        (key,), data = segment.values(), expect_object(request.data)
        if kind.example_field and not data:
            remedy = f"Send at least one field to change, such as {kind.example_field}."
            raise Refused(Problem("", None, "No changes given.", remedy, "required"))
        row = kind.get(request.user, key)
        before = kind.facts(row)
        with kind.expected(request, row) as expected:
            act = partial(kind.change, actor_of(request), key, data, **expected)
            if is_dry_run(request):
                with rehearsal():
                    done = act()
                anew = {name: f"{HIDDEN}, given anew" for name in kind.secrets if data.get(name)}
                return _dry_run(kind, "update", done, before, {**kind.facts(done), **anew})
            act()
        return kind.respond(request, key)

    setattr(ResourceObject, "put" if kind.replaces else "patch", change)
    for name, value in kind.view.items():
        setattr(ResourceList, name, value)
        setattr(ResourceObject, name, value)
    return [
        path(f"{kind.path}/", ResourceList.as_view(), name=kind.path),
        path(f"{kind.path}/<{kind.key}>/", ResourceObject.as_view(), name=kind.path[:-1]),
    ]


def _dry_run(
    kind: Resource, action: str, row: Any, before: Mapping[str, Any], after: Mapping[str, Any]
) -> Response:
    name = getattr(row, "name", None) or str(row.pk)
    return dry_run_response(action, name, before, after, kind.labels)
