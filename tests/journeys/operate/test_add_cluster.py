"""Adding a cluster in Chromium: contexts are offered while typing."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from playwright.sync_api import Browser
from pytest_django.live_server_helper import LiveServer

from console.clusters import refresh
from console.clusters.models import Cluster
from tests.console.clusters.conftest import api, kubeconfig  # noqa: F401
from tests.support.browser import Watched, watch
from tests.support.http_stub import Stub
from tests.support.people import PASSWORD, Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def refresh_cluster() -> None:
    try:
        refresh.refresh(str(Cluster.objects.get().pk))
    finally:
        connection.close()


def logged_in(browser: Browser, url: str, width: int, theme: str) -> Watched:
    watched = watch(browser, url, width, theme)
    watched.open("/login/")
    watched.page.fill("#id_username", "ada")
    watched.page.fill("#id_password", PASSWORD)
    watched.page.keyboard.press("Enter")
    watched.page.wait_for_selector("aside.navbar")
    return watched


def test_cluster_is_added_and_surveyed(
    chrome: Browser, people: Cast, api: Stub, live_server: LiveServer
) -> None:
    wide = logged_in(chrome, live_server.url, 1280, "light")
    wide.open("/clusters/add/")
    wide.page.fill("#id_name", "work")
    wide.page.fill("#id_kubeconfig", kubeconfig(api.url))
    wide.page.press("#id_kubeconfig", "Tab")
    wide.page.wait_for_selector("#contexts input[type=radio][value=work]:checked")
    wide.page.click("button[type=submit] >> text=Add cluster")
    wide.page.wait_for_selector("text=Shown after the first successful check")
    # Playwright keeps an event loop in this thread, where Django's ORM is not at home.
    with ThreadPoolExecutor(1) as elsewhere:
        elsewhere.submit(refresh_cluster).result()
    wide.page.wait_for_selector("#cluster >> text=g5.xlarge")
    narrow = logged_in(chrome, live_server.url, 390, "dark")
    for watched in (wide, narrow):
        for path in ("/clusters/", "/clusters/work/", "/clusters/work/edit/"):
            watched.open(path)
            assert not watched.overflows()
        assert watched.complaints == []
