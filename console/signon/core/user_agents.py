"""Readable names of browsers from User-Agent headers."""

from __future__ import annotations

# Order matters: each browser's header also names those below it.
_BROWSERS = (
    ("Edg", "Edge"), ("OPR/", "Opera"), ("Firefox/", "Firefox"), ("FxiOS", "Firefox"),
    ("Chrome/", "Chrome"), ("CriOS", "Chrome"), ("Safari/", "Safari"), ("curl/", "curl"),
    ("python-", "a Python program"),
)  # fmt: skip
_SYSTEMS = (
    ("iPhone", "iPhone"), ("iPad", "iPad"), ("Android", "Android"), ("Windows", "Windows"),
    ("CrOS", "ChromeOS"), ("Mac OS X", "macOS"), ("Linux", "Linux"),
)  # fmt: skip


def name_agent(agent: str) -> str:
    """Return a name such as "Firefox on Linux"."""
    browser = next((name for mark, name in _BROWSERS if mark in agent), "")
    system = next((name for mark, name in _SYSTEMS if mark in agent), "")
    if browser and system:
        return f"{browser} on {system}"
    return browser or system or "unknown browser"
