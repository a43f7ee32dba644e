"""Page shell: request IDs, error pages, health, banners, navigation, filters, static files."""

from __future__ import annotations

import logging
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from django.contrib.staticfiles import finders
from django.db import connection
from django.http import HttpRequest, StreamingHttpResponse
from django.template import Context, Template
from django.test import Client, RequestFactory, override_settings
from django.utils import timezone

from console.audit.record import record
from console.web import health
from console.web.middleware import RequestIdMiddleware
from console.web.server.static_files import HashedStorage
from console.web.shell import context, navigation
from console.web.shell.context import Banner
from console.web.templatetags import emberline
from tests.support.console import browser, make_endpoint
from tests.support.people import Cast, client_of


def test_valid_request_id_is_kept_and_an_invalid_one_replaced(db: None) -> None:
    client = Client()
    kept = client.get("/healthz", headers={"X-Request-ID": "abc.DEF-1:2"})
    assert kept.headers["X-Request-ID"] == "abc.DEF-1:2"
    for bad in ("a b", "x" * 65, "<script>", ""):
        made = client.get("/healthz", headers={"X-Request-ID": bad}).headers["X-Request-ID"]
        assert len(made) == 32
        assert made != bad


def test_log_lines_contain_the_request_id(db: None, caplog: pytest.LogCaptureFixture) -> None:
    from console.core.request_log import LogFilter

    caplog.handler.addFilter(LogFilter())
    with caplog.at_level(logging.WARNING):
        Client().get("/nowhere", headers={"X-Request-ID": "trace-me"})
    assert "trace-me" in {getattr(record, "request_id", "") for record in caplog.records}


@pytest.mark.django_db
def test_pages_for_missing_and_forbidden(people: Cast) -> None:
    client = client_of(people.charlie)
    missing = client.get("/nowhere", headers={"X-Request-ID": "id-404"})
    assert missing.status_code == 404
    assert "id-404" in missing.content.decode()
    forbidden = client.get("/access/tokens/")
    assert forbidden.status_code == 403
    assert "requires the admin role" in forbidden.content.decode()


def test_address_of_a_form_leads_to_the_page_above(people: Cast) -> None:
    answer = client_of(people.alice).get("/costs/budgets/new/")
    assert answer.status_code == 405
    assert answer.headers["Allow"] == "POST"
    assert '<a href="/costs/budgets/" class="btn">' in answer.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("url", "status"),
    [
        ("/access/?q=%00", 200),
        ("/audit/?actor=a%00&verb=%00", 200),
        ("/costs/tiers/%00/", 404),
        ("/api/v1/users/%00/", 404),
        ("/api/v1/audit/?actor=%00", 400),
    ],
)
def test_nul_in_a_url_is_no_crash(people: Cast, url: str, status: int) -> None:
    assert client_of(people.ada).get(url).status_code == status


@pytest.mark.parametrize(("kind", "held"), [("text/csv", True), ("text/event-stream", False)])
def test_stream_holds_no_database_connection(
    transactional_db: None, rf: RequestFactory, kind: str, held: bool
) -> None:
    """PostgreSQL accepts 100 by default, and each open page may have a stream. A download may have
    begun to read.
    """
    connection.ensure_connection()
    response = StreamingHttpResponse(iter([b"x"]), content_type=kind)
    RequestIdMiddleware(lambda _request: response)(rf.get("/"))
    assert (connection.connection is not None) == held


def test_expired_form_is_explained(people: Cast) -> None:
    client = Client(enforce_csrf_checks=True)
    response = client.post("/login/", {"username": "alice", "password": "x"})
    assert response.status_code == 403
    assert "reload the page" in response.content.decode()


@pytest.mark.django_db
def test_crash_page_reveals_no_internals(people: Cast, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise RuntimeError("private-detail")

    monkeypatch.setattr("console.audit.selectors.list_events", crash)
    response = client_of(people.alice).get("/audit/")
    assert response.status_code == 500
    assert "private-detail" not in response.content.decode()
    assert "Request ID" in response.content.decode()


@pytest.mark.django_db
def test_readyz_names_the_failure_and_no_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_disk", lambda: "ok")  # of the machine that runs the tests

    def broken() -> None:
        raise ConnectionError("redis://:hush-hush@127.0.0.1:1/0 refused")

    assert Client().get("/readyz").json() == {
        "ready": True,
        "checks": {"database": "ok", "broker": "ok", "disk": "ok"},
    }
    monkeypatch.setattr(health, "_broker", broken)
    response = Client().get("/readyz")
    assert response.status_code == 503
    assert response.json()["checks"]["broker"] == "failed: ConnectionError"
    assert "hush-hush" not in response.content.decode()


def test_healthz_needs_no_database() -> None:
    assert Client().get("/healthz").status_code == 200  # no `db` fixture: a query would raise


@pytest.fixture
def own_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context._providers, "_items", {})


@pytest.mark.django_db
def test_banners_are_on_every_page_and_cannot_break_one(people: Cast, own_providers: None) -> None:
    def broken(_viewer: object) -> Banner:
        raise RuntimeError

    simulated = Banner("simulated", "warning", "Simulated workers.", "Numbers are not real.")
    context.register_banner(broken)
    context.register_banner(lambda _viewer: simulated)
    context.register_banner(lambda _viewer: None)
    for url in ("/profile/", "/audit/"):
        response = client_of(people.charlie).get(url)
        assert "Simulated workers." in response.content.decode()
        assert response.context["simulated_workers"] is True
    assert "Simulated workers." not in Client().get("/login/").content.decode()


@pytest.mark.django_db
def test_menu_follows_the_role_and_marks_the_current_page(people: Cast) -> None:
    html = client_of(people.charlie).get("/audit/").content.decode()
    assert 'href="/audit/" aria-current="page"' in html
    assert 'href="/sign-on/"' not in html
    assert 'href="/sign-on/"' in client_of(people.ada).get("/audit/").content.decode()
    assert 'class="skip-link' in html


@pytest.mark.django_db
@pytest.mark.parametrize(
    "page", ["/dashboards/endpoints/demo/", "/routing/endpoints/demo/", "/endpoints/demo/"]
)
def test_pages_of_an_endpoint_belong_to_the_list_of_endpoints(page: str) -> None:
    make_endpoint()
    html = browser("viewer").get(page).text
    assert 'href="/endpoints/" aria-current="page"' in html
    assert 'href="/dashboards/" aria-current="page"' not in html


def test_menu_is_ordered_and_replaceable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(navigation._items, "_items", {})
    navigation.register_item(navigation.NavItem("B", "b", "box", 2))
    navigation.register_item(navigation.NavItem("A", "a", "box", 1))
    navigation.register_item(navigation.NavItem("B2", "b", "box", 2))
    assert [item.label for item in navigation.list_items()] == ["A", "B2"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (2, "just now"),
        (40, "40 s ago"),
        (60, "1 minute ago"),
        (7300, "2 hours ago"),
        (200_000, "2 days ago"),
        (-90, "in 1 minute"),
    ],
)
def test_ago(seconds: int, text: str) -> None:
    shown = emberline.ago(timezone.now() - timedelta(seconds=seconds))
    assert f">{text}" in shown
    assert emberline.ago(None) == "never"


def test_ago_has_the_absolute_time_beside_it() -> None:
    moment = datetime(2024, 2, 29, 23, 30, 5, tzinfo=UTC)
    assert '<span class="time-at">2024-02-29 23:30</span></time>' in emberline.ago(moment)
    with timezone.override(ZoneInfo("Asia/Tokyo")):
        shown = emberline.ago(moment)
        assert (
            '<time datetime="2024-03-01T08:30:05+09:00" title="2024-03-01 08:30:05 JST">' in shown
        )
        assert "2024-03-01 08:30</span>" in shown
        assert ">2024-03-01 08:30:05 JST</time>" in emberline.moment_(moment)
        today = timezone.localtime().replace(hour=0, minute=0, second=0)
        assert emberline.clock(today) == "00:00:00"
    assert "time-at" not in emberline.ago(timezone.now())


@pytest.mark.parametrize(
    ("cookie", "zone"),
    [
        ("Asia/Tokyo", "Asia/Tokyo"),
        ("America/Argentina/Ushuaia", "America/Argentina/Ushuaia"),
        ("UTC", "UTC"),
        ("", "UTC"),
        ("Europe", "UTC"),
        ("No/Such_Place", "UTC"),
        ("../../etc/passwd", "UTC"),
        ("/etc/localtime", "UTC"),
        ("A" * 5000, "UTC"),
        ("<b>", "UTC"),
    ],
)
def test_pages_use_the_time_zone_of_the_browser(people: Cast, cookie: str, zone: str) -> None:
    client = client_of(people.ada)
    client.cookies["emberline-zone"] = cookie
    assert f"Time zone: {zone}</a>" in client.get("/audit/").content.decode()
    assert timezone.get_current_timezone_name() == "UTC"


def test_rest_stays_in_utc(people: Cast) -> None:
    record(people.ada, "create", "endpoint/demo")
    client = client_of(people.ada)
    client.cookies["emberline-zone"] = "Asia/Tokyo"
    row = client.get("/api/v1/audit/").json()["results"][0]
    assert row["at"].endswith("Z")


def test_every_severity_is_readable_in_both_themes() -> None:
    """WCAG 2.1 AA: 4.5:1 for the text of each level on its badge and on the page."""
    css = Path(str(finders.find("console/app.css"))).read_text(encoding="utf-8")
    grounds = {"light": ("#ffffff", "#fafafa"), "dark": ("#1f1f1f", "#262626")}
    for theme, pages in grounds.items():
        (rule,) = re.findall(
            rf'^[^\n]*\[data-bs-theme="{theme}"\] {{ (--severity.*) }}$', css, re.M
        )
        colours = dict(re.findall(r"--severity-([a-z-]+): (#[0-9a-f]{6})", rule))
        for level in emberline._SEVERITY_ICONS:
            for ground in (colours[f"{level}-bg"], *pages):
                assert contrast(colours[level], ground) >= 4.5, (theme, level, ground)
    assert 'class="severity-badge severity-critical"' in emberline.severity_badge("page")
    assert emberline.severity("Degraded") == "warning"
    assert emberline.severity("<x>") == "none"


def contrast(one: str, other: str) -> float:
    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        red, green, blue = (
            x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts
        )
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "–"), (0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (3 * 2**30, "3 GiB")],
)
def test_bytes(number: int | None, text: str) -> None:
    assert emberline.bytes_(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "–"),
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (9.99, "10 s"),
        (59.6, "1 min"),
        (75, "1 min 15 s"),
        (3600, "1 h"),
        (90_000, "1 d 1 h"),
    ],
)
def test_duration(seconds: float | None, text: str) -> None:
    assert emberline.duration(seconds) == text


def test_phase_badge_is_accessible_and_escaped() -> None:
    html = Template("{% phase_badge phase reason %}").render(
        Context({"phase": "Degraded", "reason": '"><script>'})
    )
    assert '<span class="visually-hidden">Phase: </span>Degraded' in html
    assert "<script>" not in html
    assert 'aria-hidden="true"' in html


def test_every_used_icon_is_in_the_sprite() -> None:
    import re
    from pathlib import Path

    from django.conf import settings

    sprite = Path(finders.find("vendor/tabler/icons.svg")).read_text()
    named = {item.icon for item in navigation.list_items()} | {
        icon for _, icon in emberline._PHASES.values()
    }
    for template in (settings.BASE_DIR / "templates").rglob("*.html"):
        named |= set(re.findall(r'{% icon "([a-z0-9-]+)"', template.read_text()))
        named |= set(re.findall(r'icon_name="([a-z0-9-]+)"', template.read_text()))
    missing = sorted(name for name in named if f'id="icon-{name}"' not in sprite)
    assert missing == []


def test_static_names_without_collectstatic_are_plain() -> None:
    storage = HashedStorage()
    assert storage.url("vendor/htmx/htmx.min.js") == "/static/vendor/htmx/htmx.min.js"
    with override_settings(WHITENOISE_USE_FINDERS=True):
        assert Client().get("/static/vendor/htmx/htmx.min.js").status_code == 200


def test_vendored_files_have_a_licence_and_no_source_map() -> None:
    from pathlib import Path

    vendor = Path(finders.find("vendor/README.md")).parent
    for folder in ("tabler", "htmx", "plotly"):
        assert (vendor / folder / "LICENSE").read_text().strip()
    assert list(vendor.rglob("*.map")) == []
    for file in (*vendor.rglob("*.js"), *vendor.rglob("*.css")):
        assert "sourceMappingURL" not in file.read_text(), file.name


def test_htmx_history_and_boost_get_the_complete_page() -> None:
    from console.web import responses

    def request(**headers: str) -> HttpRequest:
        made = HttpRequest()
        made.META = {f"HTTP_{k.upper()}": v for k, v in headers.items()}
        return made

    assert responses.wants_partial(request(hx_request="true"))
    assert not responses.wants_partial(request())
    assert not responses.wants_partial(request(hx_request="true", hx_boosted="true"))
    assert not responses.wants_partial(
        request(hx_request="true", hx_history_restore_request="true")
    )


@pytest.mark.django_db
@pytest.mark.parametrize("shown", ["http://[", "http://evil.example/there", ""])
def test_headers_do_not_break_the_login_redirect(shown: str) -> None:
    headers = {"HX-Request": "true", "HX-Current-URL": shown}
    answer = Client().get("/endpoints/", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["HX-Redirect"].startswith("/login/?next=%2F")
    assert "evil" not in answer.headers["HX-Redirect"]


@pytest.mark.parametrize(
    ("number", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (9999, "9,999"),
        (12345, "12.3 k"),
        (999_999, "1000 k"),
        (1_234_567, "1.23 M"),
        (5e9, "5.00 G"),
    ],
)
def test_large_numbers_are_abbreviated(number: float | None, shown: str) -> None:
    assert emberline.quantity(number) == shown
