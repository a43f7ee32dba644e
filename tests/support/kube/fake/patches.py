"""JSON patch, merge patch, and strategic merge patch of keyed lists."""

from __future__ import annotations

from typing import Any

from tests.support.kube.fake.fields import item_key, keys_of
from tests.support.kube.fake.refusals import ApiError
from tests.support.kube.fake.store import copied


def merge_patch(live: Any, patch: Any) -> Any:
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    result = dict(live) if isinstance(live, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merge_patch(result.get(name), value)
    return result


def strategic(live: Any, patch: Any, name: str = "") -> Any:
    """Merge patch with keyed lists merged by key; supports `$patch: delete` and `replace`."""
    if isinstance(patch, dict):
        if patch.get("$patch") == "replace":
            return {key: value for key, value in patch.items() if key != "$patch"}
        result = dict(live) if isinstance(live, dict) else {}
        for key, value in patch.items():
            if key.startswith("$"):
                continue
            if value is None:
                result.pop(key, None)
            else:
                result[key] = strategic(result.get(key), value, key)
        return result
    if isinstance(patch, list) and isinstance(live, list) and patch:
        keys = keys_of(name, patch)
        if keys is not None:
            return _strategic_items(live, patch, keys)
    return patch


def _strategic_items(live: list[Any], patch: list[Any], keys: tuple[str, ...]) -> list[Any]:
    result = {item_key(item, keys): item for item in live}
    for item in patch:
        key = item_key(item, keys)
        if item.get("$patch") == "delete":
            result.pop(key, None)
        else:
            result[key] = strategic(result.get(key), item)
    return list(result.values())


def json_patch(live: dict[str, Any], operations: list[dict[str, Any]]) -> dict[str, Any]:
    """RFC 6902; raises 422 for an operation that does not apply."""
    result = {"": copied(live)}
    for operation in operations:
        parts = ["", *map(_unescape, operation["path"].split("/")[1:])]
        try:
            _operate(result, operation, parts)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            text = f"the server rejected our request due to an error in our request: {error!r}"
            raise ApiError(422, text) from None
    final: dict[str, Any] = result[""]
    return final


def _unescape(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _operate(root: Any, operation: dict[str, Any], parts: list[str]) -> None:
    at = root
    for part in parts[:-1]:
        at = at[int(part)] if isinstance(at, list) else at[part]
    last: Any = parts[-1]
    if isinstance(at, list):
        last = len(at) if last == "-" else int(last)
    verb = operation["op"]
    if verb == "test":
        if at[last] != operation["value"]:
            raise ValueError(f"test of {operation['path']} failed")
    elif verb == "remove":
        del at[last]
    elif verb == "replace":
        at[last]  # must exist
        at[last] = operation["value"]
    elif verb == "add" and isinstance(at, list):
        at.insert(last, operation["value"])
    elif verb == "add":
        at[last] = operation["value"]
    else:
        raise ValueError(f"no operation {verb}")
