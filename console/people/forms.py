"""Forms of the account pages; actions.py validates."""

from __future__ import annotations

from typing import Any, cast

from django import forms
from django.core.exceptions import ValidationError
from django.http import QueryDict

from console.accounts import selectors
from console.accounts.models import ApiToken, Role, Team, TeamRole, User
from console.accounts.permissions import allows_in_any_team
from console.core.grants import LABELS
from console.people.team_actions import FIELDS
from console.resources.pages import FieldsForm
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
        widget=forms.TextInput(attrs={"placeholder": "e.g. ci-pipeline", "autocomplete": "off"}),
    )
    role = forms.ChoiceField(choices=())
    team = forms.ChoiceField(label="Scope", choices=(), required=False)
    days = forms.TypedChoiceField(
        label="Expires",
        coerce=int,
        empty_value=None,
        required=False,
        choices=((30, "in 30 days"), (90, "in 90 days"), (365, "in 1 year"), ("", "never")),
        initial=90,
    )

    def __init__(self, user: User, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        roles = [
            (value, text) for value, text in TeamRole.choices if allows_in_any_team(user, value)
        ]
        mine = selectors.list_teams_with_role(user) if roles else Team.objects.none()
        teams = [(team.slug, f"{team.name} only") for team in mine]
        for name, choices in (("role", roles), ("team", [("", "All teams"), *teams])):
            field = self.fields[name]
            if isinstance(field, forms.ChoiceField):
                field.choices = choices


class TeamForm(FieldsForm):
    def __init__(self, data: Any = None, team: Team | None = None) -> None:
        super().__init__(FIELDS, data, team)
        del self.fields["slug"]
        if team is not None:
            self.initial["namespaces"] = "\n".join(team.namespaces)
        self.fields["namespaces"] = forms.CharField(
            required=False,
            widget=forms.Textarea({"rows": 3, "spellcheck": "false", "class": "font-monospace"}),
            help_text="Allowed namespaces of the team's endpoints, one per line: NAMESPACE or "
            "CLUSTER/NAMESPACE. Leave empty for any.",
        )
        self.fields["grants"] = forms.MultipleChoiceField(
            required=False,
            choices=list(LABELS.items()),
            widget=forms.CheckboxSelectMultiple(attrs={"class": "form-check-input"}),
            help_text="Permissions of the team's endpoints beyond restricted pods. Team operators "
            "gain the same access.",
        )

    def typed(self) -> dict[str, Any]:
        return {
            "name": self.text_of("name"),
            "description": self.text_of("description"),
            "namespaces": self.text_of("namespaces").replace(",", " ").split(),
            "grants": cast(QueryDict, self.data).getlist("grants"),
        }


def add_errors(form: forms.Form, error: ValidationError) -> None:
    for name, texts in getattr(error, "message_dict", {None: error.messages}).items():
        for text in texts:
            form.add_error(name if name in form.fields else None, text)
