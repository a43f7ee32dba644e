"""JSON as this API takes it.

Promises that whatever comes through can be stored, logged and sent back: no half of a surrogate
pair (such a text is in no encoding), and no nesting deeper than Python can follow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser


class StrictJSONParser(JSONParser):
    def parse(
        self,
        stream: Any,
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        try:
            data = super().parse(stream, media_type, parser_context)
            json.dumps(data, ensure_ascii=False).encode()
        except RecursionError:
            raise ParseError("JSON parse error - it is nested too deep.") from None
        except UnicodeEncodeError:
            raise ParseError("JSON parse error - a text holds half of a surrogate pair.") from None
        return data
