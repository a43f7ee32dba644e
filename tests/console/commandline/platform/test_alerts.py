"""`emberline silence` and `emberline receiver`."""

from __future__ import annotations

import pytest

from dashboards.alerts.notify import receivers
from dashboards.alerts.notify.models import Silence
from tests.console.commandline.test_parser import refused, run
from tests.support.console import make_endpoint, person
from tests.support.http_stub import http_stub

pytestmark = pytest.mark.django_db


def test_silences() -> None:
    make_endpoint("demo")
    assert "No silences" in run("silence", "list")
    said = run("silence", "add", "endpoint=demo", "severity!=page", "--for", "1d", "--comment", "x")
    one = Silence.objects.get()
    assert str(one.pk) in said
    assert 'severity!="page"' in run("silence", "list")
    assert refused("silence", "add", "endpoint", "--comment", "x")[0] == 3
    assert "ended" in run("silence", "expire", str(one.pk))
    assert "No silences" in run("silence", "list")
    assert run("silence", "list", "--all", "-o", "name") == f"{one.pk}\n"
    assert refused("silence", "expire", "00000000-0000-0000-0000-000000000001")[0] == 4


def test_receivers() -> None:
    assert "No alert receivers configured" in run("receiver", "list")
    with http_stub({"/T0KEN": (200, "")}) as stub:
        wish = {"name": "chat", "kind": "slack", "url": f"{stub.url}/T0KEN"}
        receivers.create(person("admin"), wish)
        listed = run("receiver", "list")
        assert "chat" in listed
        assert "T0KEN" not in listed
        assert "api_url: " in run("receiver", "file")
        assert "key: chat-url" in run("receiver", "file", "--object")
        assert "accepted the test" in run("receiver", "test", "chat")
        stub.answers["/T0KEN"] = (403, "")
        with pytest.raises(SystemExit) as failed:
            run("receiver", "test", "chat")
        assert failed.value.code == 1
    assert refused("receiver", "test", "nobody")[0] == 4
