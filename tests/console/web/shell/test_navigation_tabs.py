"""Tabs: registration by apps, order, and the active one."""

from __future__ import annotations

import pytest

from console.web.shell import navigation

REGISTERED = navigation._tabs._items


@pytest.fixture(autouse=True)
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(navigation._tabs, "_items", {})
    navigation.register_tab(navigation.Tab("endpoint", "Events", "endpoints:events", "history", 50))
    navigation.register_tab(
        navigation.Tab("endpoint", "Overview", "endpoints:detail", "server", 10)
    )
    navigation.register_tab(navigation.Tab("endpoint", "Routing", "routing:endpoint", "route", 30))


def active(path: str) -> list[str]:
    return [
        entry["tab"].label
        for entry in navigation.list_tabs("endpoint", "demo", path)
        if entry["active"]
    ]


def test_tabs_are_ordered_independently_of_registration() -> None:
    labels = [entry["tab"].label for entry in navigation.list_tabs("endpoint", "demo", "/")]
    assert labels == ["Overview", "Routing", "Events"]


def test_page_below_a_tab_selects_it() -> None:
    assert active("/endpoints/demo/") == ["Overview"]
    assert active("/endpoints/demo/events/") == ["Events"]
    assert active("/routing/endpoints/demo/kv/") == ["Routing"]
    assert active("/endpoints/other/") == []


def test_tab_without_a_page_is_omitted() -> None:
    navigation.register_tab(navigation.Tab("endpoint", "Gone", "endpoints:no-such-page", "x", 1))
    assert "Gone" not in [
        entry["tab"].label for entry in navigation.list_tabs("endpoint", "demo", "/")
    ]


def test_tabs_of_a_group_share_one_entry() -> None:
    shown = [
        navigation.Tab("cell", label, name, "server", order, group)
        for label, name, order, group in (
            ("Logs", "endpoints:logs", 20, "Observability"),
            ("Summary", "endpoints:detail", 10, ""),
            ("Events", "endpoints:events", 30, "Observability"),
        )
    ]
    for tab in shown:
        navigation.register_tab(tab)
    try:
        tabs = navigation.list_tabs("cell", "demo", "/endpoints/demo/events/")
        summary, observability = navigation.group_tabs(tabs)
    finally:
        for tab in shown:
            navigation._tabs.unregister(tab)
    assert (summary["label"], summary["active"]) == ("Summary", False)
    assert (observability["label"], observability["active"]) == ("Observability", True)
    assert observability["url"] == "/endpoints/demo/logs/", "a group opens its first page"
    assert [one["active"] for one in observability["tabs"]] == [False, True]


def test_other_object_kinds_have_their_own_tabs() -> None:
    assert navigation.list_tabs("tier", "default", "/") == []


@pytest.mark.parametrize(
    ("kind", "path", "group", "label"),
    [
        ("costs", "/costs/tiers/", "Prices", "Cache tiers"),
        ("costs", "/costs/", "Recent", "Recent"),
        ("alerts", "/alerts/timeline/", "Alerts", "History"),
    ],
)
def test_parts_of_the_console_have_four_tabs(
    kind: str, path: str, group: str, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(navigation._tabs, "_items", REGISTERED)
    groups = navigation.group_tabs(navigation.list_tabs(kind, "", path))
    assert len(groups) == 4
    (current,) = [entry for entry in groups if entry["active"]]
    assert current["label"] == group
    assert [tab["tab"].label for tab in current["tabs"] if tab["active"]] == [label]
