"""Size advice from merged node statistics: curve, text and chart."""

from __future__ import annotations

import pytest

from cachetier.tier.advice import HEIGHT, WIDTH, compute_what_if, draw_curve, merge_namespaces
from cachetier.tier.node_stats import Curve, Namespace

GIB = 1024.0**3


def curve(*rates: float, requests: float = 5000, capacity: float = GIB) -> Curve:
    """At 1/2, 1, 2, 4 and 8 times the capacity."""
    sizes = (0.5, 1, 2, 4, 8)
    points = tuple((capacity * size, rate) for size, rate in zip(sizes, rates, strict=True))
    return Curve(capacity, requests, points)


GROWING = curve(0.1, 0.2, 0.4, 0.6, 0.62)


def test_few_samples_give_no_advice() -> None:
    assert compute_what_if([], GIB) is None
    assert compute_what_if([curve(0.1, 0.2, 0.4, 0.6, 0.6, requests=999)], GIB) is None
    assert compute_what_if([Curve(GIB, 5000, ((GIB, 0.5),))], GIB) is None
    assert compute_what_if([GROWING], 0) is None


def test_knee_is_where_more_memory_stops_paying() -> None:
    found = compute_what_if([GROWING], GIB)
    assert found is not None
    assert found.knee.share == 4
    assert found.knee.size_bytes == 4 * GIB
    assert "At 4 × the current size, the estimated hit rate is 60 % (now 20 %)" in found.advice
    assert [(p.share, p.hit_percent) for p in found.shown] == [(0.5, 10), (1, 20), (2, 40), (4, 60)]


@pytest.mark.parametrize(
    ("rates", "message"),
    [
        ((0.59, 0.6, 0.6, 0.6, 0.61), "the size can be reduced"),
        ((0.1, 0.6, 0.61, 0.61, 0.62), "The size is adequate"),
        ((0.0, 0.001, 0.002, 0.003, 0.004), "no size gives many hits"),
    ],
)
def test_advice(rates: tuple[float, ...], message: str) -> None:
    found = compute_what_if([curve(*rates)], GIB)
    assert found is not None
    assert message in found.advice


def test_nodes_are_weighted_by_requests() -> None:
    """A node of another size is read at the same share of its own."""
    busy = curve(0.8, 0.8, 0.8, 0.8, 0.8, requests=9000)
    idle = curve(0.0, 0.0, 0.0, 0.0, 0.0, requests=1000, capacity=2 * GIB)
    found = compute_what_if([busy, idle], 3 * GIB)
    assert found is not None
    assert [round(point.hit_rate, 6) for point in found.points] == [0.72] * 5
    assert found.points[1].size_bytes == 3 * GIB


def test_hit_rate_between_two_sizes_is_interpolated() -> None:
    sparse = Curve(GIB, 5000, ((GIB / 2, 0.0), (8 * GIB, 0.75)))
    found = compute_what_if([sparse, curve(0, 0, 0, 0, 0, requests=0.001)], GIB)
    assert found is not None
    at_two = next(point for point in found.points if point.share == 2)
    assert at_two.hit_rate == pytest.approx(0.15, abs=1e-3)


def test_namespace_on_two_nodes_is_one() -> None:
    parts = [[Namespace("a", bytes=1, hits=2), Namespace("b", bytes=5)], [Namespace("a", bytes=9)]]
    assert merge_namespaces(parts) == [Namespace("a", bytes=10, hits=2), Namespace("b", bytes=5)]


def test_chart_stays_in_its_frame_and_marks_current_size_and_knee() -> None:
    found = compute_what_if([GROWING], GIB)
    assert found is not None
    drawing = draw_curve(found)
    corners = [tuple(map(float, pair.split(","))) for pair in drawing.line.split()]
    assert len(corners) == 5
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in corners)
    assert corners == sorted(corners), "larger sizes stand to the right"
    assert corners[0][1] > corners[-1][1], "what finds more stands higher"
    assert (drawing.now.x, drawing.now.y) == corners[1]
    assert (drawing.knee.x, drawing.knee.y) == corners[3]
    assert [tick.label for tick in drawing.across] == ["x 0.5", "x 1", "x 2", "x 4", "x 8"]
