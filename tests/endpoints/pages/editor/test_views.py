"""Endpoint editor without script: presets, YAML, conflicts, copies."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from console.accounts.models import Membership, Team, User
from endpoints import actions, owners
from endpoints.actions import SYSTEM
from endpoints.models import Endpoint
from endpoints.pages.editor import edit_conflict
from endpoints.placement import installation
from endpoints.spec.endpoint_spec import merge
from tests.endpoints.pages.detail.test_views import text_of
from tests.support.console import browser, make_endpoint
from tests.support.endpoints.ownership import give_to

pytestmark = pytest.mark.django_db
NEW = "/endpoints/new/"
EDIT = "/endpoints/demo/edit/"
_FIELD = re.compile(r"<(?:input|select|textarea)\b[^>]*>")


@pytest.fixture
def page(db: None) -> Client:
    return browser("operator")


def sent(answer: Any, **changes: str) -> dict[str, str]:
    """What a browser would send of this page, with some fields changed."""
    html = answer.content.decode()
    form = html[html.index('id="endpoint-form"') :]
    found: dict[str, str] = {}
    for tag in _FIELD.finditer(form[: form.index("</form>")]):
        facts = dict(re.findall(r'([\w-]+)="([^"]*)"', tag[0]))
        name = facts.get("name", "")
        if not name or " disabled" in tag[0] or name == "csrfmiddlewaretoken":
            continue
        if facts.get("type") in ("checkbox", "radio"):
            if " checked" in tag[0]:
                found[name] = facts.get("value", "on")
        elif tag[0].startswith("<input"):
            found[name] = unescape(facts.get("value", ""))
        else:
            rest = form[tag.end() :]
            found[name] = _inside(tag[0], rest)
    found |= {name.replace("__", "."): value for name, value in changes.items()}
    return found


def _inside(tag: str, rest: str) -> str:
    if tag.startswith("<textarea"):
        return unescape(rest[: rest.index("</textarea>")]).lstrip("\n").replace("\n", "\r\n")
    options = rest[: rest.index("</select>")]
    chosen = re.search(r'<option value="([^"]*)" selected', options)
    first = re.search(r'<option value="([^"]*)"', options)
    found = chosen or first
    return unescape(found[1]) if found else ""


def yaml_of(answer: Any) -> str:
    return sent(answer)["yaml"].replace("\r\n", "\n")


def sent_yaml(answer: Any, text: str) -> dict[str, str]:
    """Return what the YAML tab submits: no field of the form."""
    beside = ("generation", "start", "touched", "note", "team")
    form = sent(answer)
    return {name: form[name] for name in beside if name in form} | {"yaml": text}


def test_untouched_page_changes_nothing(page: Client, data: dict[str, Any]) -> None:
    cache = {"l1": {"size_gib": 0.1}, "l2": {"enabled": True, "ttl_s": 77}}
    made = actions.create(SYSTEM, merge(data, {"cache": cache, "tags": {"a": "1"}}))
    answer = page.post(EDIT, sent(page.get(EDIT)))
    assert answer.status_code == 302
    now = Endpoint.objects.get()
    assert (now.spec, now.generation) == (made.spec, 1)


@pytest.mark.parametrize("at", [NEW, EDIT])
def test_an_emptied_number_is_rejected_and_not_the_default(page: Client, at: str) -> None:
    make_endpoint(replicas=3)
    form = sent(page.get(at), replicas="", **({"name": "other"} if at == NEW else {}))
    refused = page.post(at, form)
    assert refused.status_code == 400
    assert "Give a whole number from 0 to 64." in refused.content.decode()
    assert [row.spec["replicas"] for row in Endpoint.objects.all()] == [3]


def test_a_link_fills_in_fields_and_the_note(page: Client, data: dict[str, Any]) -> None:
    actions.create(SYSTEM, data)
    url = f"{EDIT}?replicas=4&routing.strategy=session&cache.l1.enabled=false&nonsense=1"
    answer = page.get(f"{url}&name=other&note=Advice+today")
    text = text_of(answer)
    assert "The link filled in these changes; nothing is saved yet." in text
    for change in (
        "Replicas</a>: 2 → 4",
        "Strategy</a>: prefixaware → session",
        "L1 cache</a>: on → off",
    ):
        assert change in text
    typed = sent(answer)
    assert (typed["replicas"], typed["note"], typed["name"]) == ("4", "Advice today", "demo")
    assert page.post(EDIT, typed).status_code == 302
    made = Endpoint.objects.get()
    assert (made.spec["replicas"], made.spec["routing"]["strategy"]) == (4, "session")
    assert made.spec["cache"]["l1"]["enabled"] is False
    assert made.revisions.order_by("-number")[0].note == "Advice today"


def test_nonsense_in_a_link_is_not_saved(page: Client, data: dict[str, Any]) -> None:
    made = actions.create(SYSTEM, data)
    answer = page.post(EDIT, sent(page.get(f"{EDIT}?replicas=many")))
    assert answer.status_code == 302
    assert Endpoint.objects.get().spec == made.spec
    assert "The link filled in" not in text_of(page.get(f"{EDIT}?replicas=2&strategy=x"))


def test_preset_sets_its_fields_and_keeps_typed_ones(page: Client) -> None:
    first = sent(page.get(NEW), name="docs", replicas="2", start_with="documents")
    drawn = page.post(f"{NEW}?drawn=start", first)
    assert drawn.status_code == 200
    assert not Endpoint.objects.exists()
    text = text_of(drawn)
    assert "Long prefills are expensive" in text, "why, beside the field"
    again = sent(drawn)
    assert (again["name"], again["replicas"]) == ("docs", "2")
    assert (again["routing.strategy"], again["cache.l1.policy"]) == ("kvaware", "arc")
    assert page.post(NEW, again).status_code == 302
    spec = Endpoint.objects.get().parsed
    assert (spec.cache.l1.chunk_tokens, spec.cache.l2.enabled) == (256, True)
    by_address = sent(page.get(f"{NEW}?start=chat"))
    assert by_address["cache.l2.enabled"] == "on"
    assert page.get(f"{NEW}?start=nonsense").status_code == 200


def test_collapsed_groups_open_for_set_or_invalid_fields(page: Client) -> None:
    def opened(answer: Any) -> set[str]:
        tags = re.findall(r'id="group-(\w+)"( open)?', answer.content.decode())
        return {key for key, is_open in tags if is_open}

    plain = page.get(NEW)
    assert opened(plain) == set()
    assert "L1 0.5 GiB/worker, lru" in text_of(plain), "told while closed"
    assert opened(page.get(f"{NEW}?start=chat")) == {"cache"}
    refused = page.post(NEW, sent(plain, name="demo", resources__memory_gib="0"))
    assert opened(refused) == {"placement"}


def test_yaml_alone_can_be_edited_and_saved(page: Client) -> None:
    answer = page.post(f"{NEW}?drawn=yaml", sent(page.get(NEW), name="demo"))
    text = yaml_of(answer).replace("replicas: 1", "replicas: 3")
    assert "name: demo" in text
    assert 'name="replicas"' not in answer.content.decode(), "one tab is submitted"
    assert page.post(NEW, sent(answer, yaml=text)).status_code == 302
    assert Endpoint.objects.get().parsed.replicas == 3


def test_saving_states_whether_anything_changes(page: Client, demo_endpoint: Endpoint) -> None:
    for replicas, text in (("2", "No changes: demo"), ("3", "Changes to demo are being applied.")):
        form = sent(page.get(EDIT), replicas=replicas)
        assert text in page.post(EDIT, form, follow=True).text


def test_fields_missing_in_yaml_get_defaults_and_the_manifest_stays(page: Client) -> None:
    base = {"name": "demo", "model": "smollm2-135m-instruct", "engine": "simulated"}
    kept = {"manifest": {"kind": "K"}, "replicas": 3}
    actions.create(SYSTEM, merge(base, kept))
    answer = page.get(EDIT)
    text = "model: smollm2-135m-instruct\nengine: simulated\nreplicas: 2\n"
    assert page.post(EDIT, sent_yaml(answer, text)).status_code == 302
    spec = Endpoint.objects.get().parsed
    assert (spec.name, spec.replicas, spec.manifest) == ("demo", 2, {"kind": "K"})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: demo\nmodel: [b\nengine: simulated\n", "Line 3"),
        (
            "name: demo\nmodel: smollm2-135m-instruct\ncolour: red\n",
            "Line 3</button>: <code>colour",
        ),
        ("name: demo\nmodel: smollm2-135m-instruct\nreplicas: [1]\n", "Line 3"),
        ("name: demo\nmodel: smollm2-135m-instruct\npod:\n  image: x\n", "Line 4"),
    ],
)
@pytest.mark.parametrize("address", [NEW, f"{NEW}?drawn=yaml", f"{NEW}?drawn=form"])
def test_invalid_yaml_is_kept_with_the_error_line(
    page: Client, text: str, message: str, address: str
) -> None:
    answer = page.post(address, sent_yaml(page.get(NEW), text))
    assert answer.status_code == 400
    assert not Endpoint.objects.exists()
    assert message in text_of(answer)
    assert yaml_of(answer) == text.rstrip("\n") or yaml_of(answer) == text
    # Sent again as it is, it is still the text that counts.
    assert message in text_of(page.post(NEW, sent(answer)))
    mended = page.post(NEW, sent(answer, yaml="name: ok\nmodel: smollm2-135m-instruct\n"))
    assert mended.status_code == 302


def test_yaml_is_converted_to_the_form_and_back(page: Client) -> None:
    text = "name: demo\nmodel: smollm2-135m-instruct\nworker_args: [--xa=1, --xb=2]\nreplicas: 70\n"
    answer = page.post(f"{NEW}?drawn=form", sent_yaml(page.get(NEW), text))
    form = sent(answer)
    assert "yaml" not in form
    assert form["worker_args"] == "--xa=1\r\n--xb=2"
    assert form["replicas"] == "70", "a value out of range has its place"
    assert 'id="id_replicas_error"' in answer.content.decode()
    assert "replicas: 70" in yaml_of(page.post(f"{NEW}?drawn=yaml", form))
    assert page.post(NEW, {**form, "replicas": "2"}).status_code == 302
    assert Endpoint.objects.get().parsed.replicas == 2


def test_switching_the_tab_is_no_unsaved_input(page: Client) -> None:
    opened = sent(page.get(NEW))
    for tab in ("yaml", "form"):
        looked = page.post(f"{NEW}?drawn={tab}", opened)
        assert "data-dirty" not in looked.content.decode()
    edited = page.post(f"{NEW}?drawn=yaml", {**opened, "name": "demo", "touched": "name"})
    assert "data-dirty" in edited.content.decode()
    back = page.post(f"{NEW}?drawn=form", sent(edited))
    assert "data-dirty" in back.content.decode()


def test_concurrent_change_is_shown_and_merged(page: Client, demo_endpoint: Endpoint) -> None:
    opened = page.get(EDIT)
    theirs = {"replicas": 1, "routing": {"strategy": "kvaware"}}
    actions.patch(SYSTEM, "demo", theirs, note="more at noon")
    mine = sent(opened, replicas="3", worker_args="--xa=1", note="mine")
    met = page.post(EDIT, mine)
    assert met.status_code == 409
    text = text_of(met)
    assert "more at noon" in text
    assert "unchanged: theirs is used" in text
    kept = sent(met)
    assert (kept["replicas"], kept["note"], kept["generation"]) == ("3", "mine", "1")
    assert page.post(EDIT, kept).status_code == 409, "saving again overwrites nobody"
    merged = page.post(f"{EDIT}?drawn=merge", {**kept, "take.replicas": "theirs"})
    assert merged.status_code == 200
    assert Endpoint.objects.get().generation == 2, "nothing is saved yet"
    both = sent(merged)
    assert (both["replicas"], both["routing.strategy"]) == ("1", "kvaware")
    assert both["worker_args"] == "--xa=1"
    assert page.post(EDIT, both).status_code == 302
    spec = Endpoint.objects.get().parsed
    assert (spec.replicas, spec.routing.strategy, spec.worker_args) == (1, "kvaware", ("--xa=1",))


@pytest.mark.parametrize("by_text", [False, True])
def test_change_saved_a_moment_earlier_is_shown_too(
    page: Client, demo_endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch, by_text: bool
) -> None:
    opened = page.get(EDIT)
    if by_text:
        shown = page.post(f"{EDIT}?drawn=yaml", sent(opened))
        text = yaml_of(shown).replace("strategy: prefixaware", "strategy: session")
        typed = sent_yaml(opened, text)
    else:
        typed = {**sent(opened), "routing.strategy": "session"}
    actions.patch(SYSTEM, "demo", {"replicas": 1})
    monkeypatch.setattr(edit_conflict, "moved_on", lambda *_: False)
    met = page.post(EDIT, typed)
    assert met.status_code == 409
    assert "was changed since you opened it" in text_of(met)
    kept = "strategy: session" in yaml_of(met) if by_text else sent(met)["routing.strategy"]
    assert kept in (True, "session")


def test_merge_shows_a_further_concurrent_change(page: Client, demo_endpoint: Endpoint) -> None:
    opened = page.get(EDIT)
    actions.patch(SYSTEM, "demo", {"replicas": 1})
    met = page.post(EDIT, sent(opened, worker_args="--xa=1"))
    actions.patch(SYSTEM, "demo", {"replicas": 3})
    again = page.post(f"{EDIT}?drawn=merge", sent(met))
    assert again.status_code == 409
    assert sent(again)["seen_generation"] == "3"


def test_concurrent_change_is_detected_for_yaml_too(page: Client, demo_endpoint: Endpoint) -> None:
    opened = page.post(f"{EDIT}?drawn=yaml", sent(page.get(EDIT)))
    actions.patch(SYSTEM, "demo", {"routing": {"strategy": "kvaware"}})
    text = yaml_of(opened).replace("replicas: 2", "replicas: 3")
    met = page.post(EDIT, sent(opened, yaml=text))
    assert met.status_code == 409
    assert "replicas: 3" in yaml_of(met)
    both = sent(page.post(f"{EDIT}?drawn=merge", sent(met)))
    assert (both["replicas"], both["routing.strategy"]) == ("3", "kvaware")


def test_unreadable_yaml_of_a_concurrent_change_is_kept(
    page: Client, demo_endpoint: Endpoint
) -> None:
    opened = page.get(EDIT)
    actions.patch(SYSTEM, "demo", {"replicas": 1})
    met = page.post(EDIT, sent_yaml(opened, "name: demo\nmodel: [broken"))
    assert met.status_code == 400
    assert "model: [broken" in yaml_of(met)
    mended = {"yaml": "name: demo\nmodel: smollm2-135m-instruct\nreplicas: 3\n"}
    assert page.post(EDIT, {**sent(met), **mended}).status_code == 409


def test_copy_is_a_new_endpoint_with_the_same_spec(page: Client, demo_endpoint: Endpoint) -> None:
    actions.patch(SYSTEM, "demo", {"manifest": {"kind": "K"}, "tags": {"a": "b"}})
    answer = page.get("/endpoints/demo/clone/")
    form = sent(answer)
    assert form["name"] == "demo-copy"
    assert page.post("/endpoints/demo/clone/", form).status_code == 302
    copy = Endpoint.objects.get(name="demo-copy")
    demo_endpoint.refresh_from_db()
    assert copy.spec == {**demo_endpoint.spec, "name": "demo-copy"}
    assert (copy.generation, demo_endpoint.generation) == (1, 2)
    taken = page.post("/endpoints/demo/clone/", form)
    assert taken.status_code == 400
    assert 'id="id_name_error"' in taken.content.decode()
    assert browser("viewer").get("/endpoints/demo/clone/").status_code == 403
    long = make_endpoint("a" * 40)
    assert page.get(f"/endpoints/{long.name}/clone/").status_code == 200


def test_invalid_note_is_reported_at_its_field(page: Client, demo_endpoint: Endpoint) -> None:
    answer = page.post(EDIT, sent(page.get(EDIT), replicas="1", note="x" * 501))
    assert answer.status_code == 400
    assert 'id="id_note_error"' in answer.content.decode()
    assert sent(answer)["replicas"] == "1"


def test_foreign_owner_is_shown_before_editing(page: Client, demo_endpoint: Endpoint) -> None:
    owner = owners.Owner("prod", "llm", "demo")
    give_to(owner, "demo")
    assert "changes here are rejected" in text_of(page.get(EDIT))
    answer = page.post(EDIT, sent(page.get(EDIT), replicas="1"))
    assert answer.status_code == 409
    assert sent(answer)["replicas"] == "1"


@pytest.mark.parametrize("tab", ["form", "yaml"])
def test_endpoint_whose_workers_cannot_start_is_created_after_a_confirmation(
    page: Client, tab: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its files are here; its size is the catalogue's.
    here = {installation.DEMO_MODEL: "/models/demo"}
    monkeypatch.setattr(installation, "models", lambda: here)
    form = sent(page.get(NEW), name="demo", model=installation.DEMO_MODEL, engine="vllm")
    form |= {"resources.memory_gib": "0.25"}
    if tab == "yaml":
        form = sent(page.post(f"{NEW}?drawn=yaml", form))
    first = page.post(NEW, form)
    text = text_of(first)
    assert first.status_code == 400
    assert "its workers cannot start on this machine" in text
    assert "the worker has 0.25" in text
    assert not Endpoint.objects.exists()
    assert 'name="anyway"' in text
    assert page.post(NEW, {**sent(first), "anyway": "1"}).status_code == 302
    assert Endpoint.objects.get().parsed.resources.memory_gib == 0.25


def test_member_of_one_team_creates_endpoints_for_it(db: None) -> None:
    team = Team.objects.create(name="Search", slug="search")
    other = Team.objects.create(name="Ads", slug="ads")
    member = User.objects.create_user("mia", password="x", role="member")
    Membership.objects.create(team=team, user=member, role="operator")
    page = Client()
    page.force_login(member)
    answer = page.get(NEW)
    text = text_of(answer)
    assert "Team Search" in text
    assert "Ads" not in text
    assert "No team" not in text
    refused = page.post(NEW, {**sent(answer, name="chat"), "team": other.slug})
    assert refused.status_code == 400
    assert 'id="id_team_error"' in refused.content.decode()
    assert page.post(NEW, sent(answer, name="chat")).status_code == 302
    made = Endpoint.objects.get()
    assert made.team == team
    copy = page.get("/endpoints/chat/clone/")
    assert sent(copy)["team"] == "search"
    foreign = make_endpoint("theirs")
    Endpoint.objects.filter(pk=foreign.pk).update(team=other)
    for path in ("clone/", "edit/", "edit/look/", "edit/preview/"):
        assert page.post(f"/endpoints/theirs/{path}", sent(answer)).status_code == 404, path


def test_number_of_queries_is_constant(page: Client, demo_endpoint: Endpoint) -> None:
    def queries(ask: Any) -> int:
        ask()
        with CaptureQueriesContext(connection) as seen:
            ask()
        return len(seen.captured_queries)

    typed = sent(page.get(EDIT), replicas="1")
    asks = (
        lambda: page.get(NEW),
        lambda: page.get(EDIT),
        lambda: page.post(f"{EDIT}look/", typed),
        lambda: page.get("/endpoints/demo/clone/"),
    )
    few = [queries(ask) for ask in asks]
    assert all(few)
    for number in range(12):
        make_endpoint(f"more-{number}")
    assert [queries(ask) for ask in asks] == few
