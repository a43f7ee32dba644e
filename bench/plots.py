"""Draw the tables of docs/benchmarks/scaling.md as SVG files in docs/images.

    .venv/bin/python -m bench.plots

A table below a line `![title](../images/NAME.svg)` is drawn: its first column is the x axis, evenly
spaced, every other column a line, or bars where the first column has no numbers. A cell counts by
its first number; one without a number is left out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "benchmarks" / "scaling.md"
IMAGES = ROOT / "docs" / "images"
_PLOT = re.compile(r"^!\[(.+?)\]\(\.\./images/([\w-]+\.svg)\)\n\n((?:\|.*\n)+)", re.M)
_NUMBER = re.compile(r"[-−]?\d[\d,]*(?:\.\d+)?")
_LOG_FROM = 30.0
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 300, 64, 530, 44, 252
_COLORS = ("#2f7de1", "#e8710a", "#1a9c6b", "#d6336c", "#8a63d2", "#8c6d1f")
# The background is the file's own: GitHub's theme and the browser's scheme can differ.
_STYLE = """
.page { fill: #ffffff } .grid { stroke: #d8dee4 } text { fill: #1f2328 }
@media (prefers-color-scheme: dark) {
  .page { fill: #161b22 } .grid { stroke: #3d444d } text { fill: #e6edf3 }
}
text { font: 12px system-ui, sans-serif } .title { font-size: 14px; font-weight: 600 }
.end { text-anchor: end } .middle { text-anchor: middle }
polyline { fill: none; stroke-width: 2 }
"""


def number(cell: str) -> float | None:
    """Return the first number of a cell, None without one."""
    found = _NUMBER.search(cell)
    return float(found[0].replace(",", "").replace("−", "-")) if found else None


def scale(values: list[float]) -> tuple[Callable[[float], float], list[float]]:
    """Return the position (0 to 1) of a value on the axis, and the ticks."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= _LOG_FROM:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        ticks = [10.0**power for power in range(first, last + 1)]
        return lambda value: (math.log10(value) - first) / (last - first), ticks
    low, high = min(low, 0.0), max(high, 0.0)
    rough = (high - low) / 5 or 1.0
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    ticks = [step * at for at in range(math.floor(low / step), math.ceil(high / step) + 1)]
    return lambda value: (value - ticks[0]) / (ticks[-1] - ticks[0]), ticks


def draw(title: str, axis: str, labels: list[str], series: dict[str, list[float | None]]) -> str:
    """Return the SVG document of a plot."""
    place, ticks = scale([one for line in series.values() for one in line if one is not None])
    step = (_RIGHT - _LEFT) / len(labels)
    across = [_LEFT + step * (at + 0.5) for at in range(len(labels))]

    def down(value: float) -> float:
        return _BOTTOM - place(value) * (_BOTTOM - _TOP)

    out = [_text(16, 24, title, "title")]
    for tick in ticks:
        out.append(f'<path class="grid" d="M{_LEFT} {down(tick):.1f}H{_RIGHT}"/>')
        out.append(_text(_LEFT - 8, down(tick) + 4, f"{tick:,.10g}", "end"))
    out += [_text(x, _BOTTOM + 18, at, "middle") for x, at in zip(across, labels, strict=True)]
    out.append(_text((_LEFT + _RIGHT) / 2, _BOTTOM + 38, axis, "middle"))
    are_bars = any(number(label) is None for label in labels)
    base, thick = down(max(ticks[0], 0.0)), step * 0.8 / len(series)
    for at, (name, line) in enumerate(series.items()):
        color, y = _COLORS[at % len(_COLORS)], _TOP + 8 + 20 * at
        out.append(_bar(_RIGHT + 14, y - 5, 14, 6, color))
        out.append(_text(_RIGHT + 34, y + 2, name))
        points = [(x, down(one)) for x, one in zip(across, line, strict=True) if one is not None]
        if are_bars:
            left = thick * (at - len(series) / 2)
            out += [_bar(x + left, min(y, base), thick, abs(base - y), color) for x, y in points]
            continue
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(f'<polyline points="{path}" stroke="{color}"/>')
        out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{color}"/>' for x, y in points]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img">'
    page = f'<rect class="page" width="{_WIDTH}" height="{_HEIGHT}" rx="8"/>'
    title = f"<title>{escape(title)}</title>"
    return "\n".join([head, title, f"<style>{_STYLE}</style>", page, *out, "</svg>", ""])


def _text(x: float, y: float, words: str, kind: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}">{escape(words)}</text>'


def _bar(x: float, y: float, width: float, height: float, color: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{color}"/>'
    )


def plots(page: str) -> Iterator[tuple[str, str]]:
    """Yield file name and SVG document of each plot of the page."""
    for title, name, table in _PLOT.findall(page):
        rows = [
            [cell.strip() for cell in line.strip().strip("|").split("|")]
            for line in table.splitlines()
        ]
        head, body = rows[0], rows[2:]
        series = {key: [number(row[at]) for row in body] for at, key in enumerate(head) if at}
        yield name, draw(title, head[0], [row[0] for row in body], series)


def main() -> None:
    for name, svg in plots(PAGE.read_text()):
        (IMAGES / name).write_text(svg)
        print(IMAGES / name)


if __name__ == "__main__":
    main()
