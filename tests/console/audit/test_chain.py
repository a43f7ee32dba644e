"""Detection of audit rows changed, removed, inserted or reordered in SQL."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from console.accounts.models import Team
from console.audit import chain, integrity
from console.audit.models import AuditChain, AuditEvent
from console.audit.record import record
from console.system import rounds
from console.system.rounds import RoundState
from console.vault import key_rotation
from tests.support.console import person
from tests.support.people import client_of
from tests.support.waiting import until

pytestmark = pytest.mark.django_db
ROWS = 6


def sql(text: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(text, values)


@pytest.fixture
def rows() -> list[int]:
    """Ids of rows that are linked, as a chain of their own; one more waits."""
    chain._key.cache_clear()
    AuditEvent.objects.all().delete()
    chain.reseal_chain()
    for index in range(ROWS):
        record(None, "endpoint.scale", f"endpoint/e{index}", {"replicas": [index, index + 1.0]})
    assert chain.link_rows() == ROWS
    record(None, "endpoint.delete", "endpoint/last")
    return list(AuditEvent.objects.order_by("pk").values_list("pk", flat=True))


def test_unmodified_log_is_intact(rows: list[int]) -> None:
    found = chain.verify_chain()
    assert (found.problem, found.rows, found.waiting) == ("", ROWS, 1)
    assert chain.link_rows() == 1
    assert chain.verify_chain().rows == ROWS + 1


def _copied(old: int, new: int, place: str) -> None:
    columns = "at, actor_id, actor_name, team_id, verb, target, changes, request_id, note, seal"
    sql(
        f"INSERT INTO audit_auditevent (id, {columns}, sequence) "
        f"SELECT %s, {columns}, {place} FROM audit_auditevent WHERE id = %s",
        new,
        old,
    )


def _swapped(ids: list[int]) -> None:
    """Two rows change places together with their positions."""
    first, second = ids[1], ids[2]
    sql("UPDATE audit_auditevent SET sequence = 1002, id = 1002 WHERE id = %s", first)
    sql("UPDATE audit_auditevent SET sequence = 2, id = %s WHERE id = %s", first, second)
    sql("UPDATE audit_auditevent SET sequence = 3, id = %s WHERE id = 1002", second)


def _moved_up(ids: list[int]) -> None:
    """One is deleted and those behind it move up, so that no place is empty."""
    sql("DELETE FROM audit_auditevent WHERE id = %s", ids[2])
    for place in range(4, ROWS + 1):
        sql("UPDATE audit_auditevent SET sequence = %s WHERE sequence = %s", place - 1, place)
    sql("UPDATE audit_auditchain SET last_sequence = %s", ROWS - 1)


def _cut_at_the_end(ids: list[int]) -> None:
    sql("DELETE FROM audit_auditevent WHERE sequence > 4")
    kept = AuditEvent.objects.get(sequence=4)
    sql("UPDATE audit_auditchain SET last_sequence = 4, last_seal = %s", kept.seal)


def _begun_later(ids: list[int]) -> None:
    kept = AuditEvent.objects.get(sequence=2)
    sql("DELETE FROM audit_auditevent WHERE sequence <= 2")
    sql("UPDATE audit_auditchain SET first_sequence = 2, first_seal = %s", kept.seal)


def _washed(ids: list[int]) -> None:
    """Everything of the chain is removed, as if the console had just been upgraded."""
    sql("UPDATE audit_auditevent SET verb = 'x', sequence = NULL, seal = ''")
    sql("DELETE FROM audit_auditchain")
    chain._key.cache_clear()


def _set(column: str, value: object) -> Callable[[list[int]], None]:
    text = f"UPDATE audit_auditevent SET {column} = %s WHERE id = %s"
    return lambda ids: sql(text, value, ids[2])


def _deleted(where: str) -> Callable[[list[int]], None]:
    return lambda ids: sql(f"DELETE FROM audit_auditevent WHERE {where}")


@pytest.mark.parametrize(
    ("attack", "named"),
    [
        (_set("verb", "endpoint.get"), "was changed"),
        (_set("target", "endpoint/other"), "was changed"),
        (_set("actor_name", "somebody"), "was changed"),
        (_set("actor_id", 77), "was changed"),
        (_set("team_id", 77), "was changed"),
        (_set("note", "x"), "was changed"),
        (_set("request_id", "x"), "was changed"),
        (_set("changes", '{"replicas": [1, 9]}'), "was changed"),
        (_set("at", "2020-01-01 00:00:00"), "was changed"),
        (_set("seal", "0" * 64), "was changed"),
        (_set("sequence", None), "was not written by the console"),
        (_deleted("sequence = 3"), "row 3 is missing"),
        (_deleted("sequence IN (3, 4)"), "rows 3 to 4 are missing"),
        (_deleted("sequence = 1"), "row 1 is missing"),
        (_deleted("sequence = 6"), "row 6 is missing"),
        (_deleted("sequence IS NOT NULL"), "missing"),
        (_cut_at_the_end, "ends of the log"),
        (_begun_later, "ends of the log"),
        (_moved_up, "ends of the log"),
        (_swapped, "was changed or moved"),
        (lambda ids: _copied(ids[2], 900, "NULL"), "was not written by the console"),
        (lambda ids: _copied(ids[2], 900, "7"), "inserted"),
        (lambda ids: _copied(ids[2], 900, "0"), "inserted"),
        (lambda ids: sql("DELETE FROM audit_auditchain"), "ends of the log"),
        (_washed, "was not written by the console"),
    ],
)
def test_sql_changes_are_detected(
    rows: list[int], attack: Callable[[list[int]], None], named: str
) -> None:
    attack(rows)
    assert named in chain.verify_chain().problem
    chain.link_rows()  # which must not put it right
    assert chain.verify_chain().problem
    text, intact = integrity.verify()
    assert not intact and "changed outside the console" in text
    found = rounds.audit_round()
    assert found.state is RoundState.FAILING and "reseal" in found.remedy


def test_late_sealing_and_late_verification_are_told_apart(rows: list[int]) -> None:
    """After a night without the console the rows are sealed, but not verified."""
    chain.check_next(None)
    long_ago = timezone.now() - timedelta(hours=1)
    AuditChain.objects.update(checked_at=long_ago)
    waiting = AuditEvent.objects.filter(pk=rows[-1])
    waiting.update(at=long_ago)
    job = rounds.audit_round()
    assert job.state is RoundState.LATE and "not sealed" in job.text
    waiting.delete()
    job = rounds.audit_round()
    assert job.state is RoundState.LATE and "not verified" in job.text
    chain.check_next(None)
    assert rounds.audit_round().state is RoundState.WORKING


def test_changed_pending_row_is_detected(rows: list[int]) -> None:
    sql("UPDATE audit_auditevent SET target = 'endpoint/x' WHERE id = %s", rows[-1])
    assert f"row {rows[-1]} " in chain.verify_chain().problem


def test_check_resumes_and_keeps_its_findings(rows: list[int]) -> None:
    chain.link_rows()
    sql("UPDATE audit_auditevent SET verb = 'x' WHERE sequence = 5")
    assert [chain.check_next(2).problem for _ in range(2)] == ["", ""]
    assert "was changed" in chain.check_next(2).problem
    chain.check_next(2)
    assert AuditChain.objects.get(pk=1).problem


def test_restored_backup_is_detected_by_its_head(rows: list[int]) -> None:
    """An old copy of the whole database is intact in itself; a head kept elsewhere detects it."""
    chain.link_rows()
    head = chain.verify_chain().head
    assert integrity.compare(head) == ""
    sql("DELETE FROM audit_auditevent WHERE sequence = 7")
    assert "put back" in integrity.compare(head)
    assert "cannot be used" in integrity.compare("seven")


def test_pruning_is_recorded(rows: list[int]) -> None:
    chain.link_rows()
    AuditEvent.objects.filter(sequence__lte=3).delete()
    assert chain.verify_chain().problem, "whoever deletes rows in SQL is found"
    chain.reseal_chain()
    old = timezone.now() - timedelta(days=40)
    for event in AuditEvent.objects.order_by("pk")[:2]:
        AuditEvent.objects.filter(pk=event.pk).update(at=old)
    chain.reseal_chain()
    day = (timezone.now() - timedelta(days=30)).strftime("%Y-%m-%d")
    assert "Deleted 2 rows" in integrity.prune(day)
    chain.link_rows()
    assert chain.verify_chain().problem == ""
    assert AuditEvent.objects.get(verb="audit.prune").changes["rows"] == 2
    sql("UPDATE audit_auditevent SET verb = 'x' WHERE id = %s", AuditEvent.objects.first().pk)  # type: ignore[union-attr]
    with pytest.raises(chain.BrokenChainError):
        integrity.prune(timezone.now().strftime("%Y-%m-%d"))


def test_reseal_reports_the_broken_rows(rows: list[int]) -> None:
    sql("DELETE FROM audit_auditevent WHERE sequence = 3")
    integrity.reseal()
    chain.link_rows()
    assert chain.verify_chain().problem == ""
    assert "row 3" in AuditEvent.objects.get(verb="audit.reseal").changes["broken"]


def test_deleted_users_and_teams_leave_the_rows_unchanged(rows: list[int]) -> None:
    team = Team.objects.create(name="West", slug="west")
    alice = person("operator")
    record(alice, "endpoint.scale", "endpoint/x", of=team)
    chain.link_rows()
    team.delete()
    alice.delete()
    assert chain.verify_chain().problem == ""
    shown = client_of(person("admin")).get("/api/v1/audit/?verb=endpoint.scale").json()
    assert shown["results"][0]["team"] is None


def test_chain_is_rekeyed_with_other_secrets() -> None:
    assert integrity.SEALED in key_rotation.registered()


@pytest.mark.django_db(transaction=True)
def test_concurrent_writers_make_one_chain() -> None:
    chain._key.cache_clear()
    done = threading.Event()

    def write() -> None:
        try:
            for index in range(5):
                record(None, "x", f"endpoint/{index}")
        finally:
            connection.close()

    def link() -> None:
        try:
            while not done.is_set():
                chain.link_rows()
        finally:
            connection.close()

    writers = [threading.Thread(target=write) for _ in range(4)]
    linkers = [threading.Thread(target=link) for _ in range(2)]
    for thread in (*writers, *linkers):
        thread.start()
    for thread in writers:
        thread.join()
    until(lambda: not AuditEvent.objects.filter(sequence=None).exists(), what="every row linked")
    done.set()
    for thread in linkers:
        thread.join()
    found = chain.verify_chain()
    assert (found.problem, found.rows) == ("", 20)


@pytest.fixture(autouse=True)
def _forget_the_key() -> Iterator[None]:
    """It is of this test's database."""
    yield
    chain._key.cache_clear()
