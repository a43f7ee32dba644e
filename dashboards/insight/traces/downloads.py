"""Streamed download of an exported trace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import datetime
from itertools import islice
from typing import Any

from asgiref.sync import sync_to_async
from django.http import StreamingHttpResponse

from dashboards.insight.traces import actions

_LINES_A_PART = 256


def export_response(actor: Any, endpoint: str, query: dict[str, Any]) -> StreamingHttpResponse:
    """Return a download; `query`: name, or begin and end; trace_format and block_tokens."""
    begin: datetime | None = query.get("begin")
    lines = actions.export_trace(
        actor,
        endpoint,
        query["trace_format"],
        name=query["name"],
        begin=begin,
        end=query.get("end"),
        block_tokens=query["block_tokens"],
    )
    part = query["name"] or (f"{begin:%Y%m%dT%H%M}" if begin else "")
    file = f"{endpoint}-{part}-{query['trace_format']}.jsonl"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return StreamingHttpResponse(_parts(lines), "application/x-ndjson", headers=headers)


async def _parts(lines: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines in parts, each made in a thread."""
    take = sync_to_async(lambda: b"".join(islice(lines, _LINES_A_PART)), thread_sensitive=False)
    while part := await take():
        yield part
