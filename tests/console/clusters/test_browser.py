"""Adding a cluster in a real Chromium: contexts are offered while one pastes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from django.db import connection
from pytest_django.live_server_helper import LiveServer

from console.clusters import refresh
from console.clusters.models import Cluster
from tests.console.clusters.conftest import kubeconfig
from tests.support.browser import chromium, watch
from tests.support.http_stub import Stub
from tests.support.people import PASSWORD, Cast

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def look() -> None:
    try:
        refresh.refresh(str(Cluster.objects.get().pk))
    finally:
        connection.close()


@pytest.mark.parametrize(("width", "theme"), [(1280, "light"), (390, "dark")])
def test_a_cluster_is_added_and_seen(
    people: Cast, api: Stub, live_server: LiveServer, width: int, theme: str
) -> None:
    with chromium() as browser:
        watched = watch(browser, live_server.url, width, theme)
        page = watched.page
        watched.open("/login/")
        page.fill("#id_username", "ada")
        page.fill("#id_password", PASSWORD)
        page.keyboard.press("Enter")
        page.wait_for_selector("aside.navbar")
        watched.open("/clusters/add/")
        page.fill("#id_name", "work")
        page.fill("#id_kubeconfig", kubeconfig(api.url))
        page.press("#id_kubeconfig", "Tab")
        page.wait_for_selector("#contexts input[type=radio][value=work]:checked")
        page.click("button[type=submit] >> text=Add cluster")
        page.wait_for_selector("text=Not known yet")
        # Playwright keeps an event loop in this thread, where Django's ORM is not at home.
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(look).result()
        page.wait_for_selector("#cluster >> text=g5.xlarge")
        assert not watched.overflows()
        watched.open("/clusters/")
        assert not watched.overflows()
        assert watched.complaints == []
