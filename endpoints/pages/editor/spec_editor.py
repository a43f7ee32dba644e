"""State of the endpoint editor: base spec and the submitted form or YAML.

Form and YAML are two tabs of the same values. Only the open one is submitted; switching converts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest

from console.core.errors import Problem
from endpoints import teams
from endpoints.models import Endpoint
from endpoints.pages.editor import spec_text
from endpoints.pages.editor.edit_conflict import is_same
from endpoints.pages.editor.form_fields import MARK
from endpoints.pages.editor.forms import EndpointForm
from endpoints.pages.editor.prefill import FilledField, Prefill, list_filled, read_prefill
from endpoints.pages.editor.presets import BY_KEY, Preset
from endpoints.pages.editor.spec_text import NOT_APPLIED, LineError, SpecText
from endpoints.placement import capacity_check
from endpoints.refusals import LONGEST_NOTE, fixed_name
from endpoints.spec.endpoint_spec import SpecErrors, flatten, nest
from endpoints.spec.fields import BY_PATH, FIELDS
from endpoints.spec.rules import check

LONGEST_NAME = 40
_LONGEST_MODEL = 200


@dataclass(frozen=True, slots=True)
class YamlTab:
    """The YAML as shown, with its errors."""

    text: str
    errors: tuple[LineError, ...] = ()


@dataclass(frozen=True, slots=True)
class Submission:
    """Submitted values. `yaml` is None if the form was open. `form` holds the values unless
    `is_readable` is False: then the YAML has errors that no field of the form can hold.
    """

    form: EndpointForm
    data: Mapping[str, Any]
    errors: tuple[Problem, ...] = ()
    yaml: YamlTab | None = None
    is_readable: bool = True


class SpecEditor:
    """State of the endpoint editor. `present`: the edited endpoint; `source`: the cloned one;
    `left_off`: the preset sets L2, but there is no cache tier at the workers' location; `filled`,
    `not_filled`, `linked_note`: fields that a link changed, its other parameters with the reason,
    and its note.
    """

    def __init__(
        self,
        request: HttpRequest,
        *,
        present: Endpoint | None = None,
        source: Endpoint | None = None,
    ) -> None:
        self.present, self.source = present, source
        self._link = read_prefill(request.GET.dict()) if present else Prefill({}, {})
        self._model = "" if present or source else request.GET.get("model", "")[:_LONGEST_MODEL]
        self.linked_note = request.GET.get("note", "")[:LONGEST_NOTE] if present else ""
        self.sent: dict[str, str] = {name: str(value) for name, value in request.POST.items()}
        self.is_yaml = "yaml" in self.sent
        self.context = teams.context_of(request.user, present, self.sent.get("team", ""))
        key = self.sent.get("start", request.GET.get("start", ""))
        self.start: Preset | None = None if present else BY_KEY.get(key)
        self.left_off = False
        self.filled: list[FilledField] = []
        self.not_filled: dict[str, str] = {}

    @property
    def initial_form(self) -> EndpointForm:
        form = self._form(None)
        if self.present is not None:
            return self._prefilled(form)
        if self._model:
            form = self.holding({**form.flat(), "model": self._model})
        return form if self.start is None else self._begin(self.start, form.flat())

    def _prefilled(self, form: EndpointForm) -> EndpointForm:
        """Fill in the values of a link to a proposed change."""
        begun = form.flat()
        values = {path: value for path, value in self._link.values.items() if path in form.fields}
        self.filled = list_filled(begun, values)
        absent = [path for path in self._link.values if path not in form.fields]
        self.not_filled = self._link.ignored | {
            BY_PATH[path].label: "Not in the form of this endpoint." for path in absent
        }
        return self.holding({**begun, **values}) if self.filled else form

    @property
    def typed(self) -> EndpointForm:
        return self._form(self.sent)

    def drawn_anew(self) -> EndpointForm:
        """Return the form redrawn with its input. Unchanged preset values are replaced by those for
        the newly selected location.
        """
        flat, was = self.typed.flat(), MARK in self.sent
        there = bool(flat["placement.cluster"])
        if self.start is None or was == there:
            return self.holding(flat)
        before = self.start.over(self._form(None).usual, cluster=was)
        paths = {path for path in before if not is_same(path, flat[path], before[path])}
        begun = self._begin(self.start, flat).flat()
        return self.holding({**begun, **{path: flat[path] for path in paths}})

    def started(self, key: str) -> EndpointForm:
        form = self.drawn_anew()
        self.start = BY_KEY.get(key)
        self.sent["start"] = key if self.start else ""
        return form if self.start is None else self._begin(self.start, form.flat())

    def holding(self, flat: Mapping[str, Any]) -> EndpointForm:
        return EndpointForm.holding(flat, self.sent, **self._facts())

    def of_text(self, text: SpecText) -> EndpointForm:
        usual = self._form(None).usual
        return self.holding({**usual, **flatten(self.whole(text.data))})

    def whole(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Add the values missing in the YAML, and the immutable fields."""
        begun = self._begun() or {}
        outside = {path: begun[path] for path in spec_text.OUTSIDE_TEXT if begun.get(path)}
        name = {"name": self.present.name} if self.present else {}
        return {**outside, **name, **data}

    def judged(self, data: Mapping[str, Any]) -> tuple[Problem, ...]:
        present = self.present.parsed if self.present else None
        try:
            spec = check(data, self.context, present)
        except SpecErrors as refused:
            return refused.errors
        if present is not None and spec.name != present.name:
            return (fixed_name(present.name, spec.name),)
        return ()

    def doubts(self, data: Mapping[str, Any]) -> list[Problem]:
        """Return why workers of a valid spec cannot start here, by the capacity check."""
        try:
            return capacity_check.doubts(check(data, self.context))
        except SpecErrors:
            return []

    def text_of(self, form: EndpointForm) -> str:
        """Return the form's YAML, as resubmitting the form would give it."""
        sent = form if form.is_bound else self.holding(form.flat())
        return spec_text.to_text(nest(sent.flat()))

    def read(self) -> Submission:
        """Read the submitted tab and check its values."""
        if not self.is_yaml:
            form = self.typed
            data = form.spec_data()
            return Submission(form, data, self.judged(data))
        source = self.sent["yaml"]
        try:
            text = spec_text.parse_text(source)
        except SpecErrors as error:
            tab = YamlTab(source, spec_text.syntax_errors(error))
            return Submission(self._form(None), {}, error.errors, tab, is_readable=False)
        data = self.whole(text.data)
        errors = self.judged(data)
        tab = YamlTab(source, spec_text.locate_errors(errors, text.lines))
        if not can_apply(errors):
            return Submission(self._form(None), data, errors, tab, is_readable=False)
        return Submission(self.of_text(text), data, errors, tab)

    def _begin(self, start: Preset, flat: Mapping[str, Any]) -> EndpointForm:
        """Apply a preset; L2 stays off if there is no cache tier at the workers' location."""
        cluster = flat["placement.cluster"]
        begun = start.over(flat, cluster=bool(cluster))
        near = [
            name
            for name, tier_cluster in self.context.tier_clusters.items()
            if tier_cluster == cluster
        ]
        if cluster and begun["cache.l2.enabled"] and begun["cache.l2.tier"] not in near:
            begun["cache.l2.enabled"] = bool(near)
            begun["cache.l2.tier"] = min(near, default=begun["cache.l2.tier"])
            self.left_off = not near
        return self.holding(begun)

    def _form(self, data: Mapping[str, Any] | None) -> EndpointForm:
        return EndpointForm(data, **self._facts())

    def _facts(self) -> dict[str, Any]:
        return {
            "spec": self._begun(),
            "context": self.context,
            "changing": self.present is not None,
            "start": self.start,
        }

    def _begun(self) -> dict[str, Any] | None:
        if self.present is not None:
            return dict(self.present.spec)
        if self.source is None:
            return None
        return {**self.source.spec, "name": f"{self.source.name[: LONGEST_NAME - 5]}-copy"}


def can_apply(errors: tuple[Problem, ...]) -> bool:
    """Return whether all errors belong to form fields."""
    paths = {field.path for field in FIELDS}
    return all(error.code not in NOT_APPLIED and error.field in paths for error in errors)
