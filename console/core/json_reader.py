"""Reader of JSON input of users: what it returns can be stored, logged and returned."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_NUL = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def parse(text: str | bytes) -> Any:
    """Raise ValueError for invalid JSON, numbers outside JSON, deep nesting, unpaired surrogates,
    and NUL, which PostgreSQL cannot store.
    """
    try:
        data = json.loads(text, parse_constant=_refuse_constant)
        written = json.dumps(data, ensure_ascii=False)
        written.encode()
    except RecursionError:
        raise ValueError("nested too deep.") from None
    except UnicodeEncodeError:
        raise ValueError("a string contains an unpaired surrogate.") from None
    if _NUL.search(written):
        raise ValueError("a string contains NUL (\\u0000).")
    return data


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number.")
