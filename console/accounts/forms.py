"""The shapes of the account pages' forms; the rules are in actions.py."""

from __future__ import annotations

from typing import Any

from django import forms

from console.accounts.models import ApiToken, Role, User
from console.accounts.permissions import RANK
from console.web.forms import Styled


class NewPersonForm(Styled, forms.Form):
    username = forms.CharField(
        label="User name",
        max_length=150,
        validators=[User.username_validator],
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
    )
    role = forms.ChoiceField(choices=Role.choices, initial=Role.VIEWER)


class NewTokenForm(Styled, forms.Form):
    name = forms.CharField(
        max_length=ApiToken._meta.get_field("name").max_length,
        widget=forms.TextInput(attrs={"placeholder": "what uses it", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(choices=())
    days = forms.TypedChoiceField(
        label="Expires",
        coerce=int,
        empty_value=None,
        required=False,
        choices=((30, "in 30 days"), (90, "in 90 days"), (365, "in a year"), ("", "never")),
        initial=90,
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        allowed = [
            (value, label) for value, label in Role.choices if RANK[value] <= RANK[user.role]
        ]
        # Django types every field as the base class, which has no choices.
        self.fields["role"].choices = allowed  # type: ignore[attr-defined]
