"""The HTML report: one file that needs nothing else, made from the result file's content alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader
from markupsafe import Markup

from .charts import Bar, Line, bars, lines

HERE = Path(__file__).resolve().parent
NEAR_CEILING = 0.5
COLUMNS = (
    "load",
    "calls/s",
    "p50 ms",
    "p95 ms",
    "p99 ms",
    "max ms",
    "errors",
    "requests per batch",
    "padding",
    "queue ms",
    "CPU",
)
Result = Mapping[str, Any]
Chart = dict[str, Any]


def page(template: str, **values: Any) -> str:
    """A template of this folder with the style inlined; every value but `Markup` is escaped."""
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, keep_trailing_newline=True)
    style = Markup((HERE / "page.css").read_text("utf-8"))  # noqa: S704 -- our own file
    return environment.get_template(template).render(css=style, **values)


def chart(title: str, note: str, svg: str) -> list[Chart]:
    """A chart for the page, or none when there is nothing to draw."""
    return [{"title": title, "note": note, "svg": Markup(svg)}] if svg else []  # noqa: S704 -- labels are escaped where drawn


def render(result: Result) -> str:
    """The page for a result (load_test.schema.json)."""
    steps: list[Result] = [*result["sweep"], *result["open_loop"]]
    best = max(steps, key=lambda one: float(one["requests_per_s"]))
    return page(
        "report.html.j2",
        result=result,
        about=_about(result),
        tiles=_tiles(result, best),
        charts=_charts(result, best),
        columns=COLUMNS,
        rows=[{"cells": _cells(one), "best": one is best} for one in steps],
        errors=_errors(steps),
        footnote=_footnote(result),
    )


def _about(result: Result) -> str:
    machine, sent, generator = result["machine"], result["payloads"], result["generator"]
    ceiling = generator["ceiling_requests_per_s"]
    stopped = " · stopped early" if result["stopped_early"] else ""
    own = f" · the generator's own ceiling here: {ceiling:,.0f} calls/s" if ceiling else ""
    return (
        f"{result['started'].replace('T', ' ')} · called from {machine['cpus']} CPUs ({machine['system']}) · "
        f"{sent['count']:,} payloads of {sent['mean_bytes']:,} bytes on average{own}{stopped}"
    )


def _tiles(result: Result, best: Result) -> list[dict[str, str]]:
    target = result["limits"]["target_p99_ms"]
    within = f", p99 within {target:,.4g} ms" if target else ""
    calls = sum(one["requests"] for one in [*result["sweep"], *result["open_loop"]])
    failed = sum(one["errors"] for one in [*result["sweep"], *result["open_loop"]])
    tiles = [
        {"value": f"{result['max_requests_per_s']:,.1f}", "name": f"calls per second at most{within}"},
        {"value": f"{best['latency_ms']['p50']:,.1f} ms", "name": f"median at the fastest step ({load(best)})"},
        {"value": f"{best['latency_ms']['p99']:,.1f} ms", "name": "99th percentile there"},
        {"value": f"{failed:,}", "name": f"failed calls of {calls:,}"},
    ]
    if server := best["server"]:
        tiles.append({"value": f"{server['requests_per_batch']:,.1f}", "name": "requests per batch there"})
        tiles.append({"value": f"{server['padding_share']:.0%}", "name": "of the tokens there were padding"})
    return tiles


def _charts(result: Result, best: Result) -> list[Chart]:
    swept = result["sweep"]
    found: list[Chart] = []
    if len(swept) > 1:
        ceiling = result["generator"]["ceiling_requests_per_s"]
        near = bool(ceiling) and best["requests_per_s"] > NEAR_CEILING * ceiling
        pace = [Line("calls/s", [(one["clients"], one["requests_per_s"]) for one in swept])]
        marks = [(ceiling, "the generator's ceiling")] if near else []
        found += chart("Throughput", "good answers per second against clients", lines(pace, "clients", "calls/s", marks=marks))
        found += chart("Latency", "against clients", lines(_percentiles(swept, "clients"), "clients", "ms", log_y=True))
    if len(result["open_loop"]) > 1:
        arrived = _percentiles(result["open_loop"], "rate")
        note = "calls arrive at random moments, whoever waits; timed from their arrival"
        found += chart("Latency of independent callers", note, lines(arrived, "calls/s", "ms", log_y=True, log_x=False))
    found += _distributions(best)
    served = [one for one in swept if one["server"]]
    if len(served) > 1:
        times = [
            Line("in the queue", [(one["clients"], one["server"]["queue_ms"]) for one in served], 2),
            Line("in the handler", [(one["clients"], one["server"]["handler_ms"]) for one in served], 1),
        ]
        found += chart("Where the server spends the time", "mean per request and per batch", lines(times, "clients", "ms"))
        waste = [
            Bar(f"{one['clients']:,}", 100 * one["server"]["padding_share"], f"{one['server']['padding_share']:.1%}")
            for one in served
        ]
        found += chart("Padding", "tokens that only fill rows up", bars(waste, "clients", "% of all tokens"))
    return found


def _percentiles(steps: Sequence[Result], by: str) -> list[Line]:
    names = (("p99", 3), ("p95", 2), ("p50", 1))
    return [Line(name, [(one[by], one["latency_ms"][name]) for one in steps], colour) for name, colour in names]


def _distributions(best: Result) -> list[Chart]:
    answers = [
        Bar(
            _milliseconds(bar["from_ms"]),
            bar["count"],
            f"{bar['count']:,} between {bar['from_ms']:,.4g} and {bar['to_ms']:,.4g} ms",
        )
        for bar in best["histogram"]
    ]
    found = chart("How latencies spread", f"at the fastest step, {load(best)}", bars(answers, "ms, logarithmic", "calls"))
    if server := best["server"]:
        counts = list(server["batches"].items())
        while counts and not counts[-1][1]:
            counts.pop()
        below = ["0", *(bound for bound, _ in counts)]
        sizes = [
            Bar(_size(low, bound), number, f"{number:,} batches of {_size(low, bound)} requests")
            for low, (bound, number) in zip(below, counts, strict=False)
        ]
        found += chart(
            "Batches that the server ran", f"at the fastest step, {load(best)}", bars(sizes, "requests in a batch", "batches")
        )
    return found


def _size(below: str, bound: str) -> str:
    """``5–8`` for the bucket between the bounds 4 and 8."""
    if bound == "more":
        return f">{below}"
    first = int(float(below)) + 1
    return bound if first == int(float(bound)) else f"{first}–{bound}"


def _milliseconds(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def load(one: Result) -> str:
    """A step's load in words."""
    if "rate" in one:
        return f"{one['rate']:,.4g}/s arriving"
    return f"{one['clients']:,} client{'s' if one['clients'] != 1 else ''}"


def _cells(one: Result) -> list[str]:
    times = [f"{one['latency_ms'][name]:,.1f}" for name in ("p50", "p95", "p99", "max")]
    server = one["server"]
    seen = ["–", "–", "–"]
    if server:
        seen = [f"{server['requests_per_batch']:,.1f}", f"{server['padding_share']:.1%}", f"{server['queue_ms']:,.1f}"]
    return [load(one), f"{one['requests_per_s']:,.1f}", *times, f"{one['errors']:,}", *seen, f"{one['machine_cpu']:.0%}"]


def _errors(steps: Sequence[Result]) -> list[dict[str, str]]:
    return [
        {"kind": kind, "count": f"{count:,}", "load": load(one), "sample": one["error_samples"].get(kind, "")}
        for one in steps
        for kind, count in one["errors_by_kind"].items()
    ]


def _footnote(result: Result) -> str:
    server = any(one["server"] for one in [*result["sweep"], *result["open_loop"]])
    source = (
        "Batches, padding and queue are from the server's /metrics before and after each step. "
        if server
        else ("The server told no metrics of its own, so batches and padding are not shown. ")
    )
    return (
        f"{source}Latencies count from the moment at which a call was due. A client of a closed loop is due at its last answer; "
        "arriving calls are due at random moments, whether or not earlier ones are answered. Calls that timed out count in the "
        "latencies with the time they waited, other failures do not. CPU is all CPUs of the machine that made the calls."
    )
