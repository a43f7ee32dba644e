"""Robust linear least squares for a few non-negative coefficients."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_TUNING = 1.345  # Huber's constant, 95 % efficient for normal errors
_SCALE = 1.4826  # standard deviation of normal errors over their median absolute deviation
_MIN_SCALE = 0.01
_ROUNDS = 12
_PRIOR_ERROR = 3.0  # relative


@dataclass(frozen=True, slots=True)
class Observation:
    """Observation of the least-squares fit. `value` is modelled as the sum of `parts` x
    coefficients. Errors are relative to a mean of `size` and the modelled value: with it, values k
    times too large and k times too small balance each other. Relative to `size` alone, noisy values
    are modelled as much too small.
    """

    value: float
    parts: tuple[float, ...]
    size: float


Normal = tuple[list[list[float]], list[float]]


def solve(matrix: Sequence[Sequence[float]], vector: Sequence[float]) -> list[float]:
    """Solve a small positive definite system by elimination with pivots."""
    size = len(vector)
    rows = [[*row, value] for row, value in zip(matrix, vector, strict=True)]
    for index in range(size):
        best = max(range(index, size), key=lambda row: abs(rows[row][index]))
        rows[index], rows[best] = rows[best], rows[index]
        for below in range(index + 1, size):
            factor = rows[below][index] / rows[index][index]
            for column in range(index, size + 1):
                rows[below][column] -= factor * rows[index][column]
    solution = [0.0] * size
    for index in range(size - 1, -1, -1):
        rest = sum(rows[index][column] * solution[column] for column in range(index + 1, size))
        solution[index] = (rows[index][size] - rest) / rows[index][index]
    return solution


def deviation(errors: Iterable[float]) -> float:
    """Return the robust standard deviation of errors around 0."""
    return _SCALE * statistics.median(map(abs, errors))


def fit(observations: Sequence[Observation], prior: Sequence[float]) -> tuple[list[float], float]:
    """Return coefficients and the robust relative error. `prior`: rough coefficients, which decide
    only where the observations do not.
    """
    solution = list(prior)
    scale = 1.0
    for _ in range(_ROUNDS):
        errors = [_error(observation, solution)[0] for observation in observations]
        scale = max(deviation(errors), _MIN_SCALE)
        before = solution
        solution = solve_normal(normal(observations, solution, scale), prior, scale)
        if all(
            abs(new - old) <= 1e-6 * abs(old) for new, old in zip(solution, before, strict=True)
        ):
            break
    return solution, scale


def _error(one: Observation, coefficients: Sequence[float]) -> tuple[float, float]:
    """Return the relative error and what it is relative to."""
    modelled = sum(part * each for part, each in zip(one.parts, coefficients, strict=True))
    size = math.sqrt(modelled * math.sqrt(modelled * one.size))
    return (modelled - one.value) / size, size


def normal(
    observations: Sequence[Observation], coefficients: Sequence[float], scale: float
) -> Normal:
    """Return the normal equations with Huber's weights at these coefficients."""
    width = len(coefficients)
    matrix = [[0.0] * width for _ in range(width)]
    vector = [0.0] * width
    for observation in observations:
        error, size = _error(observation, coefficients)
        ratio = abs(error) / (_TUNING * scale)
        weight = (1.0 if ratio <= 1 else 1 / ratio) / (size * size)
        for index, part in enumerate(observation.parts):
            if part:
                weighted = weight * part
                vector[index] += weighted * observation.value
                line = matrix[index]
                for other, factor in enumerate(observation.parts):
                    line[other] += weighted * factor
    return matrix, vector


def add(parts: Sequence[Normal], width: int) -> Normal:
    """Return the sum of normal equations."""
    matrix = [[0.0] * width for _ in range(width)]
    vector = [0.0] * width
    for rows, values in parts:
        for index in range(width):
            vector[index] += values[index]
            line, row = matrix[index], rows[index]
            for other in range(width):
                line[other] += row[other]
    return matrix, vector


def solve_normal(equations: Normal, prior: Sequence[float], scale: float) -> list[float]:
    """Return non-negative coefficients: those that would be negative stay at the prior's
    hundredth. `scale`: relative error of the observations.
    """
    weight = (scale / _PRIOR_ERROR) ** 2
    matrix, vector = equations
    fixed: dict[int, float] = {}
    while True:
        free = [index for index in range(len(prior)) if index not in fixed]
        if not free:
            return [fixed[index] for index in range(len(prior))]
        # In units of the prior, so that its error is the same for each.
        rows = [[matrix[a][b] * prior[a] * prior[b] for b in free] for a in free]
        values = [
            prior[a] * (vector[a] - sum(matrix[a][b] * fixed[b] for b in fixed)) for a in free
        ]
        for index in range(len(free)):
            rows[index][index] += weight
            values[index] += weight
        solution = dict(zip(free, solve(rows, values), strict=True))
        negative = [index for index, value in solution.items() if value <= 0]
        if not negative:
            return [
                fixed[index] if index in fixed else solution[index] * prior[index]
                for index in range(len(prior))
            ]
        fixed |= {index: prior[index] / 100 for index in negative}
