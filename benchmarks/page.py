"""One HTML page of all results that lie in a folder: sections as `report` makes them, plots inside. Needs nothing beside it.

python -m benchmarks.page [FOLDER]
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from benchmarks import report
from benchmarks.models import BENCH
from benchmarks.report import Section

TEMPLATE = "page.html"
PLOTS = {
    "throughput": "Throughput against clients",
    "latency": "Latency against throughput",
    "cost": "Cost per record against work",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot as a data URI, and what it shows."""

    title: str
    source: str


@dataclass(frozen=True, slots=True)
class Part:
    """One model's results."""

    sections: list[Section]
    pictures: list[Picture]


def write(folder: Path) -> Path:
    """Render ``report.html`` from every ``results*.json`` in the folder; returns its path."""
    files = sorted(folder.glob("results*.json"), key=lambda path: len(path.name))
    parts = [Part(report.sections(json.loads(path.read_text("utf-8"))), list(_pictures(path))) for path in files]
    loader = FileSystemLoader(Path(__file__).parent)
    templates = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    templates.filters["inline"] = inline
    target = folder / "report.html"
    target.write_text(templates.get_template(TEMPLATE).render(parts=parts), "utf-8")
    return target


def inline(text: str) -> Markup:
    """A cell or sentence: what stands between ``**`` is stressed, what stands between back ticks is code."""
    safe = str(escape(text))
    stressed = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", safe)
    return Markup(re.sub(r"`(.+?)`", r"<code>\1</code>", stressed))  # noqa: S704 - escaped above


def _pictures(results: Path) -> Iterator[Picture]:
    """The plots that were drawn from a results file."""
    suffix = results.stem.removeprefix("results")
    for name, title in PLOTS.items():
        path = results.with_name(f"{name}{suffix}.svg")
        if path.exists():
            yield Picture(title, f"data:image/svg+xml;base64,{base64.b64encode(path.read_bytes()).decode()}")


if __name__ == "__main__":
    print(f"written: {write(Path(sys.argv[1]) if len(sys.argv) > 1 else BENCH)}")
