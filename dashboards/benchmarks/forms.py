"""Form of a benchmark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django import forms

from console.core.errors import Problem, Refused
from console.web.serializer_form import SerializerForm
from dashboards.benchmarks.actions import CACHES, FRESH, BenchmarkRequest
from dashboards.benchmarks.api.serializers import JobSerializer
from dashboards.benchmarks.generator.job import (
    CHAT,
    CHAT_API,
    FIELDS,
    MODES,
    RATE,
    TRACE,
    WORKLOADS,
    applies_to,
)

MAX_TRACE_BYTES = 8 * 1024**2
LIMITS = ("duration_s", "max_requests", "max_tokens", "error_percent", "request_s", "warmup_s")


class BenchmarkForm(SerializerForm):
    """Shows the fields of one workload and mode."""

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
    caches = forms.ChoiceField(
        choices=list(CACHES.items()), initial=FRESH, required=False, label="Caches"
    )

    def __init__(
        self,
        workload: str,
        mode: str,
        others: list[str],
        data: Any = None,
        files: Any = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        self.workload = workload if workload in WORKLOADS else CHAT
        self.mode = mode if mode in MODES else RATE
        self.numbers = [field for field in FIELDS if applies_to(field, self.workload, self.mode)]
        names = ["api", *(number.name for number in self.numbers)]
        super().__init__(JobSerializer(), data, values, names)
        if files is not None:
            self.files = files
        for number in self.numbers:
            self.fields[number.name].help_text = number.help
        second: Any = self.fields["second"]
        second.choices = [("", "None"), *((name, name) for name in others)]
        if self.workload == TRACE:
            self.fields["trace"] = forms.FileField(
                required=False,
                label="Trace file",
                help_text="Mooncake format, one JSON object per line, up to 8 MiB. Without a file, "
                "a built-in sample of 300 requests is used.",
            )

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

    def _trace(self) -> str:
        upload = self.files.get("trace") if self.workload == TRACE else None
        if upload is None:
            return ""
        if upload.size is None or upload.size > MAX_TRACE_BYTES:
            text, remedy = "The file is larger than 8 MiB.", "Upload a shorter trace."
            raise Refused(Problem("trace", upload.name, text, remedy, "too_large"))
        text = upload.read().decode("utf-8", errors="replace")
        return str(text)
