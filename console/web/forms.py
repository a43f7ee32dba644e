"""Django forms with Tabler's CSS classes and error marks, and their submission to an action."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from django import forms
from django.forms.boundfield import BoundField
from django.http import HttpRequest, HttpResponse, HttpResponseBase

from console.core.errors import Problem, Refused

Made = TypeVar("Made")
PLAIN_INPUT = {"spellcheck": "false", "autocomplete": "off"}
MONOSPACE = {"spellcheck": "false", "class": "font-monospace"}

_CHECKED = (forms.CheckboxInput, forms.RadioSelect, forms.CheckboxSelectMultiple)


class StyledField(BoundField):
    """Adds the class when the widget renders, so that errors are known."""

    def as_widget(
        self,
        widget: forms.Widget | None = None,
        attrs: dict[str, Any] | None = None,
        only_initial: bool = False,
    ) -> Any:
        rendered = widget or self.field.widget
        attrs = {**(attrs or {})}
        classes = [*str(rendered.attrs.get("class", "")).split(), _tabler_class(rendered)]
        if self.errors:
            classes.append("is-invalid")
            attrs["aria-errormessage"] = f"{self.auto_id}_error"
        attrs["class"] = " ".join(dict.fromkeys(classes))
        return super().as_widget(widget, attrs, only_initial)


class Styled:
    """Mixin; list it before `forms.Form` or `forms.ModelForm`."""

    bound_field_class: type[BoundField] | None = StyledField


class HiddenTextarea(forms.Textarea):
    """Text area that does not render its value."""

    def format_value(self, _value: Any) -> str | None:
        return None


class ActionForm(Styled, forms.Form):
    """Form whose input is validated by an action."""

    def text_of(self, name: str) -> str:
        """Return a field as submitted, without surrounding spaces."""
        return str(self.data.get(name, "")).strip()

    def refuse(self, problems: Iterable[Problem]) -> None:
        """Attach problems to their fields, others to the form."""
        self.full_clean()
        for problem in problems:
            has_field = problem.field in self.fields
            self.add_error(
                problem.field if has_field else None, f"{problem.message} {problem.remedy}".strip()
            )


def submit(
    request: HttpRequest,
    form: ActionForm,
    act: Callable[[], Made],
    show: Callable[[int], HttpResponse],
    done: Callable[[Made], HttpResponse],
) -> HttpResponseBase:
    """Run `act` on a POST; `show` renders the form, with its errors and that HTTP status."""
    if request.method != "POST":
        return show(200)
    try:
        made = act()
    except Refused as error:
        form.refuse(error.errors)
        return show(error.status_code)
    return done(made)


def _tabler_class(widget: forms.Widget) -> str:
    if isinstance(widget, _CHECKED):
        return "form-check-input"
    return "form-select" if isinstance(widget, forms.Select) else "form-control"
