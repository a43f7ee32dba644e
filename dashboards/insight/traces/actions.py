"""Writes on recorded and imported traffic: import, export, deletion.

Permission, validation, then one transaction with its audit entry. Recording itself is switched by
the endpoint's field `routing.record_traffic`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from console.accounts.credentials import stored_actor
from console.audit.record import record
from console.core.errors import Problem, Refused
from dashboards.insight.traces.convert import convert
from dashboards.insight.traces.formats import write_trace
from dashboards.insight.traces.models import ImportedTrace, TracePiece
from dashboards.insight.traces.storage import count_requests, load_imported, load_trace
from dashboards.insight.traces.trace import Trace, TraceError
from endpoints import selectors as endpoint_selectors
from endpoints import teams
from endpoints.models import Endpoint

MAX_EXPORTED = 500_000
MAX_IMPORTS = 20
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def import_trace(
    actor: Any, endpoint_name: str, name: str, format_name: str, data: bytes, block_tokens: int = 0
) -> ImportedTrace:
    """Store a trace file, plain or gzip, under a new name."""
    teams.require_change(actor, endpoint_name)
    endpoint = endpoint_selectors.get(endpoint_name)
    if not _NAME.fullmatch(name):
        remedy = "Use up to 80 letters, digits, dots, hyphens and underscores."
        raise _refused("name", name, "Invalid name.", remedy)
    if ImportedTrace.objects.filter(endpoint=endpoint).count() >= MAX_IMPORTS:
        message = f"The limit of {MAX_IMPORTS} imported traces is reached."
        raise _refused("name", name, message, "Delete one first.", "too_many")
    try:
        totals, packed = convert(format_name, data, block_tokens)
    except TraceError as error:
        raise _refused("file", None, str(error), "Correct the file or choose its format.") from None
    try:
        with transaction.atomic():
            row = ImportedTrace.objects.create(
                endpoint=endpoint,
                name=name,
                source_format=format_name,
                imported_by=stored_actor(actor),
                size=len(packed),
                data=packed,
                **totals,
            )
            changes = {"traces": [None, f"{name}: {row.requests} requests, {format_name}"]}
            record(stored_actor(actor), "trace.import", f"endpoint/{endpoint_name}", changes)
    except IntegrityError:
        message = f"There is already an imported trace {name}."
        raise _refused("name", name, message, "Choose another name.", "taken") from None
    return row


def delete_imported(actor: Any, endpoint_name: str, name: str) -> None:
    teams.require_change(actor, endpoint_name)
    endpoint = endpoint_selectors.get(endpoint_name)
    with transaction.atomic():
        if not ImportedTrace.objects.filter(endpoint=endpoint, name=name).delete()[0]:
            message = f"There is no imported trace {name[:80]}."
            raise _refused("name", name, message, "Choose one from the list.", "unknown")
        changes = {"traces": [name, None]}
        record(stored_actor(actor), "trace.delete", f"endpoint/{endpoint_name}", changes)


def delete_hours(actor: Any, endpoint_name: str, begin: datetime, end: datetime) -> int:
    """Delete the recorded hours that start in [begin, end); return their number."""
    teams.require_change(actor, endpoint_name)
    endpoint = endpoint_selectors.get(endpoint_name)
    check_range(begin, end)
    with transaction.atomic():
        rows = TracePiece.objects.filter(endpoint=endpoint, hour__gte=begin, hour__lt=end)
        hours = rows.order_by().values("hour").distinct().count()
        if hours:
            rows.delete()
            changes = {"recorded_hours": [_span(begin, end), None]}
            record(stored_actor(actor), "recording.delete", f"endpoint/{endpoint_name}", changes)
    return hours


def export_trace(
    actor: Any,
    endpoint_name: str,
    format_name: str,
    *,
    name: str = "",
    begin: datetime | None = None,
    end: datetime | None = None,
    block_tokens: int = 0,
) -> Iterator[bytes]:
    """Return the lines of a file: the imported trace `name`, else recorded requests."""
    teams.require_change(actor, endpoint_name)
    endpoint = endpoint_selectors.get(endpoint_name)
    trace, source = _load(endpoint, name, begin, end)
    try:
        lines = write_trace(format_name, trace, block_tokens)
    except TraceError as error:
        message, remedy = str(error), "Choose another format or block size."
        raise _refused("trace_format", format_name, message, remedy) from None
    changes = {"exported": [None, f"{source} as {format_name}"]}
    record(stored_actor(actor), "trace.export", f"endpoint/{endpoint_name}", changes)
    return lines


def _load(
    endpoint: Endpoint, name: str, begin: datetime | None, end: datetime | None
) -> tuple[Trace, str]:
    try:
        if name:
            return load_imported(endpoint, name), name
        if begin is None or end is None:
            remedy = "Give begin and end, or the name of an imported trace."
            raise _refused("begin", None, "No range given.", remedy, "required")
        check_range(begin, end)
        if (requests := count_requests(endpoint, begin, end)) > MAX_EXPORTED:
            message = f"{requests} requests are recorded in {_span(begin, end)}."
            remedy = f"Choose fewer hours, with at most {MAX_EXPORTED} requests."
            raise _refused("begin", begin.isoformat(), message, remedy, "too_many")
        trace = load_trace(endpoint, begin, end)
    except TraceError as error:
        raise _refused("name" if name else "begin", name, str(error), "") from None
    if not len(trace.requests):
        message = f"No request is recorded in {_span(begin, end)}."
        raise _refused("begin", begin.isoformat(), message, "Choose recorded hours.", "empty")
    return trace, _span(begin, end)


def check_range(begin: datetime, end: datetime) -> None:
    if begin >= end:
        message = "The range ends before it begins."
        raise _refused("end", end.isoformat(), message, "Give an end after the begin.")


def _span(begin: datetime, end: datetime) -> str:
    return f"{begin:%Y-%m-%d %H:%M}/{end:%Y-%m-%d %H:%M}"


def _refused(field: str, value: Any, message: str, remedy: str, code: str = "invalid") -> Refused:
    return Refused(Problem(field, value, message, remedy, code))
