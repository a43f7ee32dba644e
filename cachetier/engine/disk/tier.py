"""Disk tier of the store: accepts evicted values, finds and drops them.

Runs on the event loop and never waits for values: one thread writes, others read, and report back.
Drops, overwrites, flushes and expiry changes must be durable before the reply, so they are written
synchronously, 16 bytes in place: a killed process cannot bring dropped values back. A failing disk
only declines values; clients see no error.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from cachetier.engine import store
from cachetier.engine.disk.counters import DiskCounters, DiskDecline, DiskUsage, ReadOutcome
from cachetier.engine.disk.folder import DiskFolder, recover_index
from cachetier.engine.disk.format import NO_EXPIRY, FormatError, Record, record_bytes
from cachetier.engine.disk.health import DiskHealth, DiskState
from cachetier.engine.disk.index import Index, Segment
from cachetier.engine.disk.segment import SegmentFile
from cachetier.engine.disk.space import Space
from cachetier.engine.disk.threads import Done, Mailbox, Post, Reader
from cachetier.engine.disk.values import PendingWrites, SharedHold, StoredValue
from cachetier.engine.disk.writer import Write, WriteOutcome, Writer
from cachetier.engine.store import Hold, StoreFacts
from cachetier.wire import envelope as block_keys

log = logging.getLogger(__name__)

Commit = Callable[[], store.Declined | None]

MIB: Final = 1024 * 1024
_CHECK_TICKS: Final = 2


def choose_segment_bytes(capacity_bytes: int) -> int:
    """Return the segment size: few enough to keep all open, small enough to lose the oldest."""
    return min(max(capacity_bytes // 64, min(capacity_bytes // 8, 64 * MIB)), 8192 * MIB)


class DiskTier:
    """Disk tier. Call `tick` every second and `close` at the end. Event loop only, except `post`.

    Up to `queue_bytes` of memory hold values to be written; the index may use `max_index_bytes`.
    """

    def __init__(
        self, path: Path, capacity_bytes: int, *, queue_bytes: int, max_index_bytes: int, post: Post
    ) -> None:
        """Recover the folder; blocks. Raise InUseError; other disk errors are retried later."""
        self.counters = DiskCounters()
        self.health = DiskHealth(str(path))
        self._segment_bytes = choose_segment_bytes(capacity_bytes)
        self._queue_bytes = queue_bytes
        self._max_record_bytes = min(self._segment_bytes * 3 // 4, queue_bytes)
        self._ticks = 0
        self._rising: bytes | None = None
        self._lock = threading.Lock()
        self._under_way = PendingWrites(self._lock)
        mailbox = Mailbox(post)
        self._reader = Reader(mailbox)
        folder, self._index = self._open(path)
        files = [segment.file for segment in self._index.segments.values()]
        self._writer = Writer(
            folder, path, capacity_bytes, self._segment_bytes, self._lock, mailbox, self, files
        )
        self._space = Space(
            self._index, capacity_bytes, self._segment_bytes, max_index_bytes,
            self.counters, self._under_way, self._writer,
        )  # fmt: skip
        self._space.make_room()

    def _open(self, path: Path) -> tuple[DiskFolder | None, Index]:
        now, folder = time.monotonic(), None
        try:
            folder = DiskFolder(path)
            index, removed = recover_index(folder, _wall_clock_ms())
        except OSError as exc:
            if folder is not None:
                folder.close()
            self.counters.failures += 1
            self.health.failed(exc, now, "opening it")
            return None, Index()
        self.health.worked(now)
        log.info(
            "Disk %s: recovered %d values in %d segments, removed %d segments, in %.2f s",
            path, len(index), len(index.segments), removed, time.monotonic() - now,
        )  # fmt: skip
        return folder, index

    def close(self, finish_s: float) -> None:
        """Write queued values and close cleanly within `finish_s` seconds. Ends reads. Blocks."""
        self.health.closed("stopping")
        self._reader.close()
        self._writer.stop(finish_s)
        if not self._writer.join(finish_s + 1.0):
            log.error("Disk did not respond in time; the folder was not closed cleanly")
        self._index.forget_all()
        self._under_way.end_all()

    def tick(self) -> None:
        """Run periodic work. Called once per second."""
        self._ticks += 1
        now = time.monotonic()
        if self.health.may_try(now):
            self.health.retry_at = math.inf  # until this attempt ends
            self._writer.retry()
        elif self.health.is_ok and self._ticks % _CHECK_TICKS == 0:
            self._writer.check()
        self._drop_ended()

    def _drop_ended(self) -> None:
        """Free expired entries of one segment per call; expired values are never served."""
        segments = list(self._index.segments.values())
        if segments:
            segment = segments[self._ticks % len(segments)]
            for key in self._index.ended(segment, _wall_clock_ms()):
                self._index.take(key)  # the slot on disk holds the expiry already
            self._space.remove_if_empty(segment)

    @property
    def spare_bytes(self) -> int:
        if not self.health.is_ok:
            return 0
        return max(self._queue_bytes - self._under_way.waiting_bytes, 0)

    def offer(self, key: bytes, hold: Hold, ends_at: float) -> None:
        ends_ms = _to_wall_clock_ms(ends_at)
        declined = self._declines(key, hold.length, ends_ms)
        place = self._index.find(key)
        if place is not None and (declined or not self._space.goes_soon(place[0])):
            place[0].sink(place[1])  # promoted from here and still on disk
            hold.release()
            return
        if declined is not None:
            self.counters.declined[declined] += 1
            hold.release()
            return
        self.drop(key)
        write = Write(key, hold.length, ends_ms, hold)
        self._under_way.add(write)
        self._writer.write(write)

    def _declines(self, key: bytes, length: int, ends_ms: int) -> DiskDecline | None:
        if not self.health.is_ok:
            return DiskDecline.DOWN
        if ends_ms <= _wall_clock_ms():
            return DiskDecline.ENDED
        if record_bytes(key, length) > self._max_record_bytes:
            return DiskDecline.TOO_LARGE
        if self._under_way.waiting_bytes + length > self._queue_bytes:
            return DiskDecline.BEHIND
        return None

    def find(self, key: bytes, now: float) -> Hold | StoredValue | None:  # noqa: ARG002
        """Return the value, counted as a use."""
        place = self._alive(key)
        if place is None:
            write = self._under_way.value(key, _wall_clock_ms())
            return None if write is None else SharedHold(write, self._under_way.let_go)
        if self._reader.is_behind:
            self.counters.reads[ReadOutcome.BEHIND] += 1
            return None
        return StoredValue(self, *place)

    def peek(self, key: bytes, now: float) -> StoreFacts | None:  # noqa: ARG002
        place = self._alive(key)
        if place is not None:
            length = place[0].length(place[1])
            return StoreFacts(length, record_bytes(key, length), on_disk=True)
        write = self._under_way.value(key, _wall_clock_ms())
        if write is None:
            return None
        return StoreFacts(write.length, record_bytes(key, write.length), on_disk=True)

    def ttl(self, key: bytes, now: float) -> float | None:  # noqa: ARG002
        place = self._alive(key)
        write = self._under_way.value(key, _wall_clock_ms())
        if place is not None:
            ends_ms = place[0].ends[place[1]]
        elif write is not None:
            ends_ms = write.ends_ms
        else:
            return None
        return math.inf if ends_ms == NO_EXPIRY else (ends_ms - _wall_clock_ms()) / 1000

    def walk(self) -> Iterator[bytes]:
        yield from self._index.keys()
        yield from (key for key in self._under_way if key not in self._index)

    def expire(self, key: bytes, ttl_s: float | None, now: float) -> bool:
        if self.ttl(key, now) is None:
            return False
        ends_ms = NO_EXPIRY if ttl_s is None else _wall_clock_ms() + max(int(ttl_s * 1000), 1)
        place, write = self._index.find(key), self._under_way.get(key)
        try:
            with self._lock:  # a move must not finish in between: the record has two places
                if write is not None:
                    write.ends_ms = ends_ms
                if write is not None and write.place is not None:
                    file, record = write.place
                    file.commit(record.slot, ends_ms, record.crc)
                elif place is not None:
                    place[0].file.commit(place[1], ends_ms, place[0].record(place[1]).crc)
        except OSError as exc:  # with its old expiry it might outlive the new one
            self._refused(exc)
            return self.drop(key)
        if place is not None:
            place[0].ends[place[1]] = ends_ms
        return True

    def drop(self, key: bytes) -> bool:
        if key == self._rising:
            return True
        place, write = self._index.take(key), self._under_way.cancel(key)
        if write is not None and write.place is not None:
            self._wipe(write.place[0], [write.place[1].slot])
        if place is not None:
            self._wipe(place[0].file, [place[1]])
            self._space.remove_if_empty(place[0])
        return place is not None or write is not None

    def clear(self, namespace: str | None) -> int:
        if namespace is not None:
            return self._clear_namespace(namespace)
        count = sum(1 for _ in self.walk())
        for key in list(self._under_way):
            self._under_way.cancel(key)
        for segment in list(self._index.segments.values()):
            self._retire(segment)
        return count

    def _clear_namespace(self, namespace: str) -> int:
        doomed = [key for key in self.walk() if block_keys.parse_namespace(key) == namespace]
        slots: dict[SegmentFile, list[int]] = {}
        for key in doomed:
            place, write = self._index.take(key), self._under_way.cancel(key)
            if place is not None:
                slots.setdefault(place[0].file, []).append(place[1])
            if write is not None and write.place is not None:
                slots.setdefault(write.place[0], []).append(write.place[1].slot)
        for file, those in slots.items():
            self._wipe(file, those)
        for segment in list(self._index.segments.values()):
            self._space.remove_if_empty(segment)
        return len(doomed)

    def usage(self) -> DiskUsage:
        index, space = self._index, self._space
        return DiskUsage(
            used_bytes=space.used_bytes,
            capacity_bytes=space.limit,
            entries=len(index),
            risen=sum(segment.risen for segment in index.segments.values()),
            live_bytes=sum(segment.live_bytes for segment in index.segments.values()),
            waiting_bytes=self._under_way.waiting_bytes,
            index_bytes=index.bytes_estimated,
            segments=len(index.segments),
            state=self.health.state,
            reason=self.health.reason,
        )

    def _wipe(self, file: SegmentFile, slots: Sequence[int]) -> None:
        if file.voided:
            return
        try:
            if len(slots) == 1:  # lock-free: the writer may hold the lock during disk I/O
                file.wipe(slots[0])
            else:
                with self._lock:
                    file.wipe_many(slots)
        except OSError as exc:
            self._refused(exc)
            segment = self._index.segments.get(file.number)
            if segment is not None:  # a record that cannot be wiped is removed with its segment
                self._retire(segment)

    def _retire(self, segment: Segment) -> None:
        trouble = self._space.retire(segment)
        if trouble is not None:
            self._refused(trouble)

    def _refused(self, error: OSError) -> None:
        self._writer.halted = True
        self.failed(error, "dropping a value")

    def _alive(self, key: bytes) -> tuple[Segment, int] | None:
        place = self._index.find(key)
        if place is None or place[0].ends[place[1]] <= _wall_clock_ms():
            return None
        return place

    def read(
        self, segment: Segment, record: Record, views: Sequence[memoryview] | None, done: Done
    ) -> None:
        self._reader.read(segment.file, record, views, done)

    def was_read(
        self, segment: Segment, record: Record, trouble: FormatError | OSError | None
    ) -> None:
        if trouble is None:
            self.counters.reads[ReadOutcome.OK] += 1
            self.counters.read_bytes += record.length
            return
        kind = ReadOutcome.CORRUPT if isinstance(trouble, FormatError) else ReadOutcome.ERROR
        self.counters.reads[kind] += 1
        log.warning("Dropped an unreadable value of segment %x: %s", segment.file.number, trouble)
        if self.is_at(segment, record):
            self.drop(record.key)

    def is_at(self, segment: Segment, record: Record) -> bool:
        return self._index.find(record.key) == (segment, record.slot)

    def bring_up(self, segment: Segment, record: Record, commit: Commit) -> bool:
        """Store the value in memory through `commit`, keeping the disk copy.

        The store drops a newly stored key from disk; the promoted value is the same, so it stays
        and need not be rewritten on eviction.
        """
        self._rising = record.key
        try:
            declined = commit()
        finally:
            self._rising = None
        if declined is None and self.is_at(segment, record):
            segment.rise(record.slot)
            self.counters.promoted += 1
        return declined is None

    def unpin(self, segment: Segment) -> None:
        self._space.unpin(segment)

    def opened(self, file: SegmentFile, free_bytes: int) -> None:
        self._space.opened(file, free_bytes)

    def finished(self, file: SegmentFile, size: int) -> None:
        self._space.finished(file, size)

    def closed(self, file: SegmentFile) -> None:
        self._space.closed(file)

    def worked(self) -> None:
        self.health.worked(time.monotonic())

    def failed(self, error: OSError, doing: str) -> None:
        self.counters.failures += 1
        self.health.failed(error, time.monotonic(), doing)
        if self.health.state is DiskState.FULL:
            self._space.disk_is_full()
        elif self.health.state is DiskState.GONE:
            self._space.retire_all()

    def short(self) -> None:
        self._space.make_room()

    def ended(self, write: Write) -> None:
        stood = self._under_way.ended(write)
        if stood and write.outcome is WriteOutcome.WRITTEN:
            self._stand(write)
        elif stood and write.outcome is WriteOutcome.CORRUPT:
            self.counters.reads[ReadOutcome.CORRUPT] += 1
            self.drop(write.key)
        elif write.source is None:
            self.counters.declined[_DECLINED[write.outcome]] += 1
        if write.source is not None:
            self._space.moved(write.outcome)

    def _stand(self, write: Write) -> None:
        assert write.place is not None
        file, record = write.place
        segment = self._index.segments.get(file.number)
        old = self._index.take(write.key)
        if old is not None:
            self._space.remove_if_empty(old[0])
        if segment is not None:
            self._index.put(segment, record, write.ends_ms)
        if write.source is None:
            self.counters.written += 1
            self.counters.written_bytes += write.length


_DECLINED: Final = {
    WriteOutcome.WRITTEN: DiskDecline.ENDED,  # cancelled just after it was written
    WriteOutcome.CANCELLED: DiskDecline.ENDED,
    WriteOutcome.DOWN: DiskDecline.DOWN,
}


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _to_wall_clock_ms(ends_at: float) -> int:
    """Convert a monotonic time to wall clock milliseconds."""
    if ends_at == math.inf:
        return NO_EXPIRY
    return _wall_clock_ms() + int((ends_at - time.monotonic()) * 1000)
