"""One log record as one line of JSON, for collectors which read containers' output.

Promises valid JSON on one line whatever the message holds, RFC 3339 times in UTC, and never to
raise for a field which is no JSON (its text is written instead). Knows no Django.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        when = datetime.fromtimestamp(record.created, UTC)
        facts: dict[str, object] = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "request_id": getattr(record, "request_id", "-"),
        }
        if record.exc_info:
            facts["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            facts["stack"] = self.formatStack(record.stack_info)
        return json.dumps(facts, ensure_ascii=False, default=str)
