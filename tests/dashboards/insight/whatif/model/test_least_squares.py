"""Tests of the robust linear fit."""

from __future__ import annotations

import random

import pytest

from dashboards.insight.whatif.model.least_squares import Observation, fit, solve


def observations(outliers: int, coefficients: tuple[float, ...] = (3.0, 0.5)) -> list[Observation]:
    chance = random.Random(1)
    found = []
    for number in range(400):
        parts = (chance.uniform(1, 10), chance.uniform(1, 50))
        value = sum(one * part for one, part in zip(coefficients, parts, strict=True))
        value *= chance.lognormvariate(0, 0.03) * (20 if number < outliers else 1)
        found.append(Observation(value, parts, value))
    return found


def test_solve_needs_no_ordered_rows() -> None:
    assert solve([[0.0, 2.0], [4.0, 1.0]], [6.0, 11.0]) == pytest.approx([2.0, 3.0])


@pytest.mark.parametrize("outliers", [0, 40])
def test_outliers_hardly_move_the_fit(outliers: int) -> None:
    found, scale = fit(observations(outliers), [1.0, 1.0])
    assert found == pytest.approx([3.0, 0.5], rel=0.05)
    assert scale < 0.1


def test_tiny_values_hardly_move_the_fit() -> None:
    rows = observations(0)
    tiny = [Observation(one.value / 300, one.parts, one.value / 300) for one in rows[:8]]
    found, scale = fit(tiny + rows[8:], [1.0, 1.0])
    assert found == pytest.approx([3.0, 0.5], rel=0.05)
    assert scale < 0.1


def test_noisy_values_are_not_modelled_as_too_small() -> None:
    chance = random.Random(2)
    rows = []
    for one in observations(0):
        value = one.value * chance.lognormvariate(0, 0.6)  # other load on the machine
        rows.append(Observation(value, one.parts, value))
    found, _ = fit(rows, [1.0, 1.0])
    usual = (5.5, 25.5)
    modelled = sum(one * part for one, part in zip(found, usual, strict=True))
    assert modelled == pytest.approx(3.0 * usual[0] + 0.5 * usual[1], rel=0.1)


def test_a_coefficient_without_data_stays_at_the_prior() -> None:
    rows = [Observation(one.value, (*one.parts, 0.0), one.size) for one in observations(0)]
    found, _ = fit(rows, [1.0, 1.0, 7.0])
    assert found[2] == pytest.approx(7.0)


def test_coefficients_are_not_negative() -> None:
    found, _ = fit(observations(0, (3.0, -0.05)), [1.0, 1.0])
    assert found[0] > 0
    assert found[1] == pytest.approx(0.01)
