"""A browser's own long word for itself, as a person would say it. Knows no Django."""

from __future__ import annotations

# The first that is found counts: each claims to be those behind it, too.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("FxiOS", "Firefox"),
    ("Chrome/", "Chrome"), ("CriOS", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl"),
    ("python-", "a Python program"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"),
    ("CrOS", "ChromeOS"), ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip


def named(agent: str) -> str:
    """ "Firefox on Linux"; what is not known is said so."""
    browser = next((name for mark, name in _BROWSERS if mark in agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or "unknown browser"
