"""Pages of a kind: list, form, removal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from django import forms
from django.contrib import messages
from django.db import models
from django.forms.utils import ErrorDict
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import URLPattern, path
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.accounts.permissions import actor_of, allows
from console.core.errors import Problem, Refused
from console.resources.fields import ModelFields
from console.resources.kind import Kind
from console.web.forms import ActionForm, submit


class FieldsForm(ActionForm):
    """Form with the fields that people set, as the model describes them; `ModelFields.fill`
    validates. `row`: whose values it shows.
    """

    def __init__(
        self, fields: ModelFields[Any], data: Mapping[str, Any] | None = None, row: Any = None
    ) -> None:
        initial = fields.values(row) if row else {}
        super().__init__(data, initial={name: _plain(value) for name, value in initial.items()})
        self._names = fields.names
        for name in fields.names:
            self.fields[name] = make_field(fields, name)

    def full_clean(self) -> None:
        self._errors = ErrorDict()
        self.cleaned_data = {}

    def refuse(self, problems: Iterable[Problem]) -> None:
        hints = [field.help_text for field in self.fields.values()]
        # The page shows a field's help text beside it.
        super().refuse(
            replace(problem, remedy="") if problem.remedy in hints else problem
            for problem in problems
        )

    def typed(self) -> dict[str, Any]:
        return {name: self._typed(name) for name in self._names}

    def _typed(self, name: str) -> Any:
        is_flag = isinstance(self.fields[name], forms.BooleanField)
        return name in self.data if is_flag else self.text_of(name)


def make_field(fields: ModelFields[Any], name: str) -> forms.Field:
    described = fields.of(name)
    field: forms.Field = described.formfield(label=described.verbose_name)
    if isinstance(described, models.DateField):
        field.widget = forms.DateInput({"type": "date"}, format="%Y-%m-%d")
    return field


def _make_form(kind: Kind[Any], row: Any, data: Mapping[str, Any] | None) -> FieldsForm:
    form = FieldsForm(kind.fields, data, row)
    key = make_field(kind.fields, kind.key)
    key.disabled, key.initial = row is not None, row.pk if row else None
    form.fields = {kind.key: key, **form.fields}
    return form


def _plain(value: Any) -> Any:
    """Return whole floats as integers: "64", not "64.0"."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def make_urls(kind: Kind[Any]) -> list[URLPattern]:
    """Return the URL patterns "list", "new", "edit" and "remove" of a kind."""
    home = f"{kind.app}:list"
    writer = role_required(kind.role)

    @require_safe
    def index(request: HttpRequest) -> HttpResponse:
        may_change = allows(actor_of(request), kind.role)
        rows = [
            {
                "key": row.pk,
                "cells": [(column, column.cell(row)) for column in kind.columns],
                "removal": kind.removal(row) if may_change else None,
            }
            for row in kind.all_rows()
        ]
        context = {"kind": kind, "rows": rows, "may_change": may_change, "home": home}
        return render(request, "resources/list.html", context)

    @require_http_methods(["GET", "HEAD", "POST"])
    @writer
    def edit(request: HttpRequest, key: str = "") -> HttpResponseBase:
        row = kind.find(key) if key else None
        if key and row is None:
            raise Http404
        form = _make_form(kind, row, request.POST if request.method == "POST" else None)

        def act() -> Any:
            return kind.save(actor_of(request), key or form.text_of(kind.key), form.typed())

        def show(status: int) -> HttpResponse:
            context = {"kind": kind, "form": form, "row": row, "home": home}
            return render(request, "resources/form.html", context, status=status)

        def done(saved: Any) -> HttpResponse:
            messages.success(request, f"{saved.pk} saved.")
            return redirect(home)

        return submit(request, form, act, show, done)

    @require_POST
    @writer
    def remove(request: HttpRequest, key: str) -> HttpResponseBase:
        try:
            left = kind.remove(actor_of(request), key)
        except Refused as error:
            messages.error(request, str(error))
        else:
            text = "removed" if left is None else "reset to the built-in values"
            messages.success(request, f"{key} {text}.")
        return redirect(home)

    return [
        path("", index, name="list"),
        path("new/", edit, name="new"),
        path("<str:key>/edit/", edit, name="edit"),
        path("<str:key>/remove/", remove, name="remove"),
    ]
