"""Convert a document to typed values; an error names the field, the value and the remedy."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Meta, inspect

_PROBLEM = re.compile(
    r"(?:Object (contains unknown|missing required) field `(.*?)`|.*?)"
    r"(?: - at (`key`)?(?: in )?(?:`\$(.*)`)?)?",
    re.DOTALL,
)
_STEP = re.compile(r"\.([^.\[]+)|\[(\d+)\]")
_EXPECTED: dict[type, tuple[str, str]] = {
    inspect.BoolType: ("must be true or false", "Use true or false."),
    inspect.FrozenSetType: ("must be a list", "Write [] for none."),
    inspect.ListType: ("must be a list", "Write [] for none."),
    inspect.StructType: ("must be an object", "Give key: value."),
}


class ConfigError(Exception):
    """Invalid configuration: names the field, the value, the reason and the fix."""

    file: Path | None = None  # unreadable file: retry when it appears

    def __init__(self, field: str, value: object, message: str, remedy: str) -> None:
        super().__init__(f"{field}: {message} (value: {value!r}). {remedy}")
        self.field = field
        self.value = value
        self.message = message
        self.remedy = remedy


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Object of the document; it has only the fields declared."""


def between(low: float, high: float) -> Meta:
    return Meta(ge=low, le=high)


def matching(pattern: str, message: str = "", remedy: str = "", hidden: bool = False) -> Meta:
    """Require the whole text to match. `hidden`: errors omit the value."""
    text = {
        "message": message or "has invalid characters or an invalid length",
        "remedy": remedy or "Use visible ASCII characters without spaces.",
        "hidden": hidden,
    }
    return Meta(pattern=rf"\A(?:{pattern})\Z", extra=text)


def one_of(choices: tuple[str, ...], message: str) -> Meta:
    return matching("|".join(choices), message, f"Use one of: {', '.join(choices)}.")


def described(message: str, remedy: str) -> Meta:
    """Use this error text for a field which has no pattern."""
    return Meta(extra={"message": message, "remedy": remedy})


def convert(data: Any, kind: Any, name: str = "") -> Any:
    """Return `data` as a `kind`. `name`: field of `data`, "" for the whole document."""
    try:
        return msgspec.convert(data, kind)
    except UnicodeEncodeError:  # a lone surrogate, which JSON can escape
        raise ConfigError(
            name or "(whole)", "(hidden)", "has a field name that is not Unicode", "Remove it."
        ) from None
    except msgspec.ValidationError as error:
        raise _explain(str(error), data, inspect.type_info(kind), name) from None


def _explain(text: str, value: Any, kind: Any, name: str) -> ConfigError:
    """Translate an error of msgspec, which names only the expected type and the place."""
    problem = _PROBLEM.fullmatch(text)
    assert problem is not None
    reason, field, of_key, place = problem.groups()
    default: Any = None
    # A field name with backquotes makes the place ambiguous; the error then names the parsed part.
    with contextlib.suppress(LookupError, StopIteration, TypeError):
        for key, index in _STEP.findall(place or ""):
            kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
            if key:
                fields = next(k.fields for k in kinds if isinstance(k, inspect.StructType))
                mismatched = next(f for f in fields if f.encode_name == key)
                value, kind, default = value[key], mismatched.type, mismatched.default
                name = f"{name}.{key}" if name else key
            else:
                kind = next(k.item_type for k in kinds if isinstance(k, inspect.ListType))
                value = value[int(index)]
                name = f"{name}[{index}]"
    if reason or of_key:
        entries = value if isinstance(value, dict) else {}
        key = field if reason else next((key for key in entries if not isinstance(key, str)), "")
        name = f"{name}.{key}" if name else str(key) or "(empty)"
        if reason == "missing required":
            return ConfigError(name, None, "is missing", "Add it.")
        return ConfigError(name, entries.get(key), "is not known", "Remove or rename it.")
    return _mismatch(name or "(whole)", value, kind, default)


def _mismatch(name: str, value: Any, kind: Any, default: Any) -> ConfigError:
    if isinstance(kind, inspect.UnionType):
        kind = kind.types[0]
    text: dict[str, Any] = {}
    if isinstance(kind, inspect.Metadata):
        kind, text = kind.type, kind.extra or {}
    value_shown = "(hidden)" if text.get("hidden") else value
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        number = "a whole number" if isinstance(kind, inspect.IntType) else "a number"
        message = f"must be {number} from {kind.ge} to {kind.le}"
        remedy = "Leave it out for none." if default is None else f"The default is {default}."
        return ConfigError(name, value_shown, message, remedy)
    if text and (isinstance(value, str) or not isinstance(kind, inspect.StrType)):
        return ConfigError(name, value_shown, text["message"], text["remedy"])
    message, remedy = _EXPECTED.get(type(kind), ("must be text", "Put it in quotes."))
    return ConfigError(name, value_shown, message, remedy)


def read_file(name: str, value: str, base_dir: Path) -> tuple[Path, bytes]:
    path = base_dir / value
    try:
        return path, path.read_bytes()
    except OSError as error:
        refusal = ConfigError(
            name, value, f"cannot be read: {error.strerror}", f"Put the file at {path}."
        )
        refusal.file = path
        raise refusal from None
