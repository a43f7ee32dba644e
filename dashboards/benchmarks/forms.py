"""Form of a benchmark, derived from the job's field table."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from django import forms

from console.core.errors import Problem
from console.web.forms import ActionForm
from dashboards.benchmarks.actions import CACHES, FRESH, BenchmarkRequest
from dashboards.benchmarks.generator.job import (
    APIS,
    CHAT,
    CHAT_API,
    FIELDS,
    MODES,
    RATE,
    TRACE,
    WORKLOADS,
    Field,
    Job,
    applies_to,
)

MAX_TRACE_BYTES = 8 * 1024**2
LIMITS = ("duration_s", "max_requests", "max_tokens", "error_percent", "request_s", "warmup_s")


class BenchmarkForm(ActionForm):
    """Shows the fields of one workload and mode; the job's rules validate them."""

    title = forms.CharField(
        max_length=80,
        required=False,
        label="Title",
        help_text="Optional, for example the change being measured.",
    )
    second = forms.ChoiceField(
        required=False,
        label="Second endpoint",
        help_text="Measured after the first, for comparison.",
    )
    caches = forms.ChoiceField(choices=list(CACHES.items()), initial=FRESH, label="Caches")
    api = forms.ChoiceField(
        choices=list(APIS.items()),
        initial=CHAT_API,
        label="API",
        help_text="Models without a chat template support completions only.",
    )

    def __init__(self, workload: str, mode: str, others: list[str], *args: Any, **kw: Any) -> None:
        super().__init__(*args, **kw)
        self.workload = workload if workload in WORKLOADS else CHAT
        self.mode = mode if mode in MODES else RATE
        second: Any = self.fields["second"]
        second.choices = [("", "None"), *((name, name) for name in others)]
        if self.workload == TRACE:
            self.fields["trace"] = forms.FileField(
                required=False,
                label="Trace file",
                help_text="Mooncake format, one JSON object per line, up to 8 MiB. Without a file, "
                "a built-in sample of 300 requests is used.",
            )
        self.numbers = [field for field in FIELDS if applies_to(field, self.workload, self.mode)]
        for number in self.numbers:
            self.fields[number.name] = _number(number)

    def work(self) -> list[Any]:
        return [
            self[number.name] for number in self.numbers if number.name not in (*LIMITS, "seed")
        ]

    def limits(self) -> list[Any]:
        return [self[name] for name in LIMITS]

    def read(self) -> BenchmarkRequest:
        data: Mapping[str, Any] = self.data
        fields: dict[str, Any] = {"workload": self.workload, "mode": self.mode}
        fields["api"] = data.get("api") or CHAT_API
        for number in self.numbers:
            value = data.get(number.name)
            if value not in (None, ""):
                fields[number.name] = value
        return BenchmarkRequest(
            fields,
            title=str(data.get("title", "")),
            caches=str(data.get("caches") or FRESH),
            second=str(data.get("second") or ""),
            trace=self._trace(),
        )

    def refuse(self, problems: Iterable[Problem]) -> None:
        self.is_valid()
        for problem in problems:
            text = f"{problem.message} {problem.remedy}"
            name = problem.field if problem.field in self.fields else None
            if name is None or text not in self.errors.get(name, ()):
                self.add_error(name, text)

    def _trace(self) -> str:
        upload = self.files.get("trace") if self.workload == TRACE else None
        if upload is None:
            return ""
        if upload.size is None or upload.size > MAX_TRACE_BYTES:
            return "{}"  # rejected at its first line; the form reports the size
        text: str = upload.read().decode("utf-8", errors="replace")
        return text

    def clean_trace(self) -> Any:
        upload = self.cleaned_data.get("trace")
        if upload is not None and upload.size > MAX_TRACE_BYTES:
            raise forms.ValidationError("The file is larger than 8 MiB. Upload a shorter trace.")
        return upload


def _number(one: Field) -> forms.Field:
    """Return a text field: the job's own rules are the only validation."""
    unit = f" ({one.unit})" if one.unit else ""
    step = "1" if one.whole else "any"
    attrs = {"inputmode": "numeric" if one.whole else "decimal", "step": step}
    attrs |= {"min": f"{one.low:.15g}", "max": f"{one.high:.15g}"}
    return forms.CharField(
        required=False,
        label=f"{one.label}{unit}",
        initial=f"{getattr(Job(), one.name):.15g}",
        help_text=one.help,
        widget=forms.NumberInput(attrs=attrs),
    )
