"""Django forms with Tabler's CSS classes and error marks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.forms.boundfield import BoundField

_CHECKED = (forms.CheckboxInput, forms.RadioSelect, forms.CheckboxSelectMultiple)


class StyledField(BoundField):
    """Adds the class when the widget renders, so that errors are known."""

    def as_widget(
        self,
        widget: forms.Widget | None = None,
        attrs: dict[str, Any] | None = None,
        only_initial: bool = False,
    ) -> Any:
        shown = widget or self.field.widget
        attrs = {**(attrs or {})}
        classes = [*str(shown.attrs.get("class", "")).split(), _tabler_class(shown)]
        if self.errors:
            classes.append("is-invalid")
            attrs["aria-errormessage"] = f"{self.auto_id}_error"
        attrs["class"] = " ".join(dict.fromkeys(classes))
        return super().as_widget(widget, attrs, only_initial)


class Styled:
    """Mixin; list it before `forms.Form` or `forms.ModelForm`."""

    bound_field_class: type[BoundField] | None = StyledField


def _tabler_class(widget: forms.Widget) -> str:
    if isinstance(widget, _CHECKED):
        return "form-check-input"
    return "form-select" if isinstance(widget, forms.Select) else "form-control"
