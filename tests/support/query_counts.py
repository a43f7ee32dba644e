"""Compare the number of queries of a page with a recorded number.

`QUERY_COUNTS=write pytest ...` records the numbers; otherwise any difference fails, fewer queries
included.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext


def check(client: Client, url: str, kept: Path) -> None:
    """GET `url` twice and compare the second time, with warm caches and sessions."""
    client.get(url)
    with CaptureQueriesContext(connection) as seen:
        response = client.get(url)
    assert response.status_code == 200, f"{url} answered {response.status_code}"
    counts: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    if os.environ.get("QUERY_COUNTS") == "write":
        counts[url] = len(seen)
        kept.write_text(json.dumps(dict(sorted(counts.items())), indent=2) + "\n")
        return
    listing = "\n".join(query["sql"] for query in seen.captured_queries)
    assert len(seen) == counts.get(url), (
        f"{url} made {len(seen)} queries, {counts.get(url)} are kept in {kept.name}:\n{listing}"
    )
