"""Forms of budgets and tier prices; `actions` validates them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from console.web.forms import ActionForm
from dashboards.costs.actions import BUDGET_FIELDS, PRICE_FIELDS
from dashboards.costs.models import Whose

_LABELS = {
    "name": "Name",
    "whose": "Scope",
    "subject": "Subject",
    "usd": "Budget (USD/month)",
    "usd_hour": "Price (USD/h)",
    "machine": "Instance type",
    "disk_usd_gib_month": "Disk price (USD/GiB/month)",
    "since": "Valid from",
    "source": "Source",
}


class _Form(ActionForm):
    known: Mapping[str, str] = {}
    amounts: frozenset[str] = frozenset()

    def __init__(
        self, data: Mapping[str, Any] | None = None, shown: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(data, initial=dict(shown or {}))
        for field, text in self.known.items():
            widget = forms.TextInput({"inputmode": "decimal"} if field in self.amounts else {})
            self.fields[field] = forms.CharField(
                label=_LABELS[field], required=False, help_text=text, widget=widget
            )

    def typed(self) -> dict[str, Any]:
        """Return numbers where they parse, else the text; None for empty fields."""
        found: dict[str, Any] = {}
        for field in self.known:
            text = self.text_of(field)
            found[field] = (_number(text) if text else None) if field in self.amounts else text
        return found


class BudgetForm(_Form):
    known = BUDGET_FIELDS
    amounts = frozenset({"usd"})

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fields["whose"] = forms.ChoiceField(
            label=_LABELS["whose"], choices=Whose.choices, required=False
        )
        self.order_fields(list(BUDGET_FIELDS))


class TierPriceForm(_Form):
    known = PRICE_FIELDS
    amounts = frozenset({"usd_hour", "disk_usd_gib_month"})

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.fields["since"].widget = forms.DateInput(attrs={"type": "date"})


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
