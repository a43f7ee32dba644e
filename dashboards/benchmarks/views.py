"""Pages of benchmarks: list, form, run (live) and comparison."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.gate import role_required
from console.core.errors import Refused
from console.web import responses
from dashboards.benchmarks import actions, documents, load_plan, selectors
from dashboards.benchmarks.forms import BenchmarkForm
from dashboards.benchmarks.generator.comparison import compare as compare_samples
from dashboards.benchmarks.generator.comparison import cumulative_curve
from dashboards.benchmarks.generator.job import MODES, WORKLOADS
from dashboards.benchmarks.generator.samples import COLUMNS, as_row
from dashboards.benchmarks.models import Benchmark
from dashboards.boards.charts import inline_chart
from endpoints import selectors as endpoints
from endpoints.refusals import NotFoundError

PAGE = 25
NEEDS_WORD = "Confirm that you are allowed to load these endpoints."


@require_safe
def index(request: HttpRequest) -> HttpResponse:
    name = request.GET.get("endpoint", "")
    rows = selectors.list_runs(request.user)
    if name:
        rows = rows.filter(endpoint__name=name)
    names = endpoints.endpoints(request.user).values_list("name", flat=True)
    context = {"page": _page(request, rows), "wanted": name, "names": list(names)}
    return render(request, "benchmarks/index.html", context)


@require_safe
def endpoint(request: HttpRequest, name: str) -> HttpResponse:
    context = {
        "endpoint": _endpoint(name),
        "page": _page(request, selectors.list_endpoint_runs(name)),
    }
    return render(request, "benchmarks/endpoint.html", context)


def _page(request: HttpRequest, rows: Any) -> Any:
    light = rows.defer("progress", "endpoint__spec")
    page = Paginator(light, PAGE).get_page(request.GET.get("page"))
    page.object_list = [documents.summarize_run(row) for row in page.object_list]
    return page


@require_http_methods(["GET", "HEAD", "POST"])
@role_required("operator")
def new(request: HttpRequest, name: str) -> HttpResponseBase:
    row = _endpoint(name)
    form = _form(request, name)
    if request.method != "POST":
        return responses.render(
            request,
            "benchmarks/new.html",
            "benchmarks/htmx/form.html",
            _form_context(form, row, request),
        )
    try:
        benchmark = form.read()
        if request.POST.get("understood") != "on":
            benchmark.job()
            form.add_error(None, NEEDS_WORD)
        else:
            run = actions.start(request.user, name, benchmark)[0]
            return redirect(run)
    except Refused as refused:
        form.refuse(refused.errors)
    return render(request, "benchmarks/new.html", _form_context(form, row, request), status=400)


@require_POST
@role_required("operator")
def outlook(request: HttpRequest, name: str) -> HttpResponse:
    form = _form(request, name)
    return render(request, "benchmarks/htmx/outlook.html", _outlook(form, _endpoint(name), request))


def _form(request: HttpRequest, name: str) -> BenchmarkForm:
    chosen = request.POST if request.method == "POST" else request.GET
    others = endpoints.endpoints(request.user).exclude(name=name).values_list("name", flat=True)
    workload, mode = chosen.get("workload", ""), chosen.get("mode", "")
    if request.method == "POST":
        return BenchmarkForm(workload, mode, list(others), request.POST, request.FILES)
    initial = {key: value for key, value in request.GET.items() if value}
    return BenchmarkForm(workload, mode, list(others), values=initial)


def _form_context(form: BenchmarkForm, one: Any, request: HttpRequest) -> dict[str, Any]:
    choices = {"workloads": WORKLOADS.items(), "modes": MODES.items()}
    return {"form": form, "endpoint": one, **choices, **_outlook(form, one, request)}


def _outlook(form: BenchmarkForm, one: Any, request: HttpRequest) -> dict[str, Any]:
    """Return the preview only; the form shows invalid numbers."""
    if not form.is_bound:
        filled = {field.name: field.value() or "" for field in form if field.name != "trace"}
        form = BenchmarkForm(form.workload, form.mode, [], filled)
    try:
        benchmark = form.read()
        job = benchmark.job()
        runs = [one]
        if benchmark.second:
            runs.append(endpoints.get(benchmark.second, viewer=request.user))
        return {"outlook": load_plan.make_preview(job, runs), "sample": not benchmark.trace}
    except Refused as refused:
        return {"outlook": None, "why_not": refused}


@never_cache
@require_safe
def run(request: HttpRequest, name: str, run: UUID) -> HttpResponse:
    row = _run(name, run)
    context = {"endpoint": row.endpoint, **documents.build_page(row)}
    return responses.render(request, "benchmarks/run.html", "benchmarks/htmx/run.html", context)


@require_POST
@role_required("operator")
def abort(request: HttpRequest, name: str, run: UUID) -> HttpResponseBase:
    row = _run(name, run)
    actions.abort(request.user, row)
    if row.live:
        messages.success(request, "The benchmark is being aborted; no more requests are sent.")
    else:
        messages.info(request, "The benchmark had ended already; nothing was aborted.")
    return redirect(row)


@require_POST
@role_required("operator")
def delete(request: HttpRequest, name: str, run: UUID) -> HttpResponseBase:
    row = _run(name, run)
    try:
        actions.delete(request.user, row)
    except Refused as refused:
        messages.error(request, str(refused))
        return redirect(row)
    messages.success(request, "Benchmark deleted.")
    return redirect("benchmarks:endpoint", name=name)


@require_safe
def as_json(_request: HttpRequest, name: str, run: UUID) -> HttpResponse:
    row = _run(name, run)
    text = json.dumps(documents.build_document(row), indent=2, default=str)
    return _file(HttpResponse(text, content_type="application/json"), row, "json")


@require_safe
def as_csv(_request: HttpRequest, name: str, run: UUID) -> HttpResponseBase:
    """Return one line per request, times in seconds."""
    row = _run(name, run)
    writer = csv.writer(_Echo())
    samples = selectors.read_samples(row)
    lines = (writer.writerow(as_row(sample)) for sample in samples)
    body = StreamingHttpResponse(
        [writer.writerow(COLUMNS), *lines], content_type="text/csv; charset=utf-8"
    )
    return _file(body, row, "csv")


class _Echo:
    """File object for csv.writer whose write returns the line, for streaming."""

    def write(self, line: str) -> str:
        return line


def _file(response: Any, row: Benchmark, kind: str) -> Any:
    name = f"benchmark-{row.endpoint.name}-{row.created_at:%Y%m%d-%H%M%S}.{kind}"
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """Compare `?run=...&run=...`; the older run is A."""
    chosen = request.GET.getlist("run")
    if len(set(chosen)) != 2:
        messages.error(request, "Select two finished runs to compare.")
        return redirect("benchmarks:index")
    rows = [_found(partial(selectors.get_visible_run, request.user, pk)) for pk in chosen]
    a, b = sorted(rows, key=lambda row: row.created_at)
    of_a, of_b = selectors.read_samples(a), selectors.read_samples(b)
    context = {
        "sides": [
            {"key": key, **documents.summarize_run(row)} for key, row in (("A", a), ("B", b))
        ],
        "found": compare_samples(of_a, of_b, documents.list_caveats(a, b)),
        "chart": inline_chart.make_ttft_chart(
            {"A": cumulative_curve(of_a), "B": cumulative_curve(of_b)}
        ),
    }
    return render(request, "benchmarks/compare.html", context)


def _found(find: Callable[[], Benchmark]) -> Benchmark:
    try:
        return find()
    except Refused as refused:
        raise Http404(str(refused)) from refused


def _run(name: str, run: UUID) -> Benchmark:
    return _found(lambda: selectors.get_run(name, run))


def _endpoint(name: str) -> Any:
    try:
        return endpoints.get(name)
    except NotFoundError as error:
        raise Http404(name) from error
