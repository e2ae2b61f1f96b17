"""Reports of an evaluation: the same rows as data, as Markdown and as a page with charts.

Law: a report is made from outcomes alone; the same outcomes give the same report, to the byte.
(tests/test_evals.py::test_the_report_has_every_column_with_its_interval)
"""

from __future__ import annotations

import html as escaping
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from callgate.evals._statistics import mcnemar, median, wilson

if TYPE_CHECKING:
    from callgate.evals._outcomes import Outcome

RATES: tuple[tuple[str, Callable[[Outcome], bool], Callable[[Outcome], bool]], ...] = (
    ("form kept", lambda o: o.wants_call, lambda o: o.kept),
    ("parses", lambda o: True, lambda o: o.parses),
    ("valid", lambda o: o.called, lambda o: o.valid),
    ("right tool", lambda o: o.wants_call, lambda o: o.right_tool),
    ("right arguments", lambda o: o.wants_call, lambda o: o.right),
    ("words alone", lambda o: o.wants_call and o.words is not None, lambda o: bool(o.words)),
    ("false call", lambda o: not o.wants_call, lambda o: o.called),
)
"""Column, over which outcomes it is counted, and when it counts. A request that was refused or broke off is an error of
its own and no answer: no rate counts it, neither as right nor as wrong."""

Row = dict[str, Any]


def summary(outcomes: Sequence[Outcome]) -> list[Row]:
    """A row for each model, protocol and group, in the order in which they were asked."""
    kinds = list(dict.fromkeys((o.model, o.protocol, o.group) for o in outcomes))
    return [_row(kind, [o for o in outcomes if (o.model, o.protocol, o.group) == kind]) for kind in kinds]


def _row(kind: tuple[str, str, str], outcomes: Sequence[Outcome]) -> Row:
    row: Row = {"model": kind[0], "protocol": kind[1], "group": kind[2], "cases": len(outcomes)}
    for name, over, hit in RATES:
        counted = [o for o in outcomes if o.error is None and over(o)]
        hits = sum(hit(o) for o in counted)
        low, high = wilson(hits, len(counted))
        row[name] = (
            {"hits": hits, "of": len(counted), "low": round(low, 4), "high": round(high, 4)} if counted else None
        )
    total = max(len(outcomes), 1)
    row["retries"] = round(sum(o.retries for o in outcomes) / total, 3)
    row["input"] = round(sum(o.input for o in outcomes) / total, 1)
    row["output"] = round(sum(o.output for o in outcomes) / total, 1)
    row["seconds"] = round(median([o.seconds for o in outcomes]), 3)
    row["cpu"] = round(sum(o.cpu for o in outcomes) / total, 3)
    row["errors"] = sum(o.error is not None for o in outcomes)
    return row


def pairs(outcomes: Sequence[Outcome]) -> list[Row]:
    """Every two protocols of one model and group, compared on the cases that both were asked."""
    out: list[Row] = []
    for model, group in dict.fromkeys((o.model, o.group) for o in outcomes):
        here = [o for o in outcomes if (o.model, o.group) == (model, group)]
        names = list(dict.fromkeys(o.protocol for o in here))
        for i, first in enumerate(names):
            out += [{"model": model, "group": group, **_pair(here, first, other)} for other in names[i + 1 :]]
    return out


def _pair(outcomes: Sequence[Outcome], first: str, second: str) -> Row:
    asked = [o for o in outcomes if o.error is None]
    a = {o.case: o.right for o in asked if o.protocol == first}
    b = {o.case: o.right for o in asked if o.protocol == second}
    both = [(a[case], b[case]) for case in a if case in b]
    return {"first": first, "second": second, **_split(both)}


def _split(both: Sequence[tuple[bool, bool]]) -> Row:
    return {
        "cases": len(both),
        "only first": sum(x and not y for x, y in both),
        "only second": sum(y and not x for x, y in both),
        "p": round(mcnemar(both), 4),
    }


def compare(before: Sequence[Outcome], after: Sequence[Outcome]) -> str:
    """Two evaluations side by side in Markdown, on the cases that both hold, with the cases whose outcome changed."""
    lines = [
        "| model | protocol | group | cases | right in A | right in B | only A | only B | p |",
        "|---|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    changed: list[str] = []
    old = {(o.protocol, o.group, o.case): o for o in before}
    new = {(o.protocol, o.group, o.case): o for o in after}
    for protocol, group in dict.fromkeys((o.protocol, o.group) for o in after):
        both = [(old[k], new[k]) for k in new if k[:2] == (protocol, group) and k in old]
        if both:
            lines.append(_compared(both))
            changed += [_changed(b) for a, b in both if a.right != b.right]
    if len(lines) == 2:
        return "The two evaluations have no case in common.\n"
    return "\n".join(lines) + "\n" + ("\n" + "\n".join(changed) + "\n" if changed else "")


def _compared(both: Sequence[tuple[Outcome, Outcome]]) -> str:
    """One line of the table: a protocol and a group in both evaluations."""
    first, second = both[0]
    split = _split([(a.right, b.right) for a, b in both])
    rates = [f"{sum(right) / len(both):.3f}" for right in zip(*((a.right, b.right) for a, b in both), strict=True)]
    models = " → ".join(dict.fromkeys((first.model, second.model)))
    counts = [str(split["only first"]), str(split["only second"]), f"{split['p']:.3f}"]
    return _line([models, second.protocol, second.group, str(len(both)), *rates, *counts])


def _changed(now: Outcome) -> str:
    sign, why = ("+", "now right") if now.right else ("-", now.wrong or "now wrong")
    return f"{sign} {now.protocol} {now.case}: {why}"


COLUMNS = tuple(name for name, _, _ in RATES)


NOTE = (
    "Rates with their 95 % intervals (Wilson), over the cases without an error; seconds are the median, tokens and CPU "
    "the mean a case. *words alone*: right arguments of the word matcher without any model."
)


def markdown(outcomes: Sequence[Outcome]) -> str:
    """The table, and below it the paired comparisons."""
    head = ["protocol", "group", "cases", *COLUMNS, "errors", "retries", "tokens in/out", "seconds", "CPU s"]
    lines: list[str] = []
    rows = summary(outcomes)
    for model in dict.fromkeys(r["model"] for r in rows):
        lines += [f"**{model}**", "", _line(head), _line(["---"] * 2 + ["---:"] * (len(head) - 2))]
        lines += [_line(_cells(row)) for row in rows if row["model"] == model]
        lines.append("")
    lines += [NOTE]
    if compared := pairs(outcomes):
        lines += ["", _line(["group", "A", "B", "cases", "only A right", "only B right", "p (McNemar)"])]
        lines.append(_line(["---"] * 3 + ["---:"] * 4))
        for p in compared:
            counts = [str(p["cases"]), str(p["only first"]), str(p["only second"]), f"{p['p']:.4f}"]
            lines.append(_line([p["group"], p["first"], p["second"], *counts]))
    return "\n".join(lines) + "\n"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cells(row: Row) -> list[str]:
    tail = [
        str(row["errors"]),
        f"{row['retries']:.2f}",
        f"{row['input']:.0f}/{row['output']:.0f}",
        f"{row['seconds']:.2f}",
    ]
    rates = [_rate(row[name]) for name in COLUMNS]
    return [row["protocol"], row["group"], str(row["cases"]), *rates, *tail, f"{row['cpu']:.2f}"]


def _rate(rate: Row | None) -> str:
    if rate is None:
        return "–"
    return f"{rate['hits'] / rate['of']:.2f} ({rate['low']:.2f}–{rate['high']:.2f})"


_STYLE = """
:root{color-scheme:light dark}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0;font-variant-numeric:tabular-nums}
td,th{padding:.25rem .6rem;border-bottom:1px solid #8884;text-align:right}
td:first-child,th:first-child,td:nth-child(2),th:nth-child(2){text-align:left}
svg{display:block;margin:1rem 0;max-width:100%}
text{font:12px system-ui,sans-serif;fill:currentColor}
.scroll{overflow-x:auto}
"""


def html(outcomes: Sequence[Outcome], title: str = "callgate eval") -> str:
    """One page that needs nothing else: charts with intervals, then the tables."""
    rows = summary(outcomes)
    head = ["protocol", "group", "cases", *COLUMNS, "errors", "retries", "tokens in/out", "seconds", "CPU s"]
    parts = [f"<h1>{escaping.escape(title)}</h1>"]
    for model in dict.fromkeys(r["model"] for r in rows):
        here = [r for r in rows if r["model"] == model]
        parts.append(f"<h2>{escaping.escape(model)}</h2>")
        charts = {n: [r for r in here if r[n] is not None] for n in ("right arguments", "right tool", "false call")}
        parts += [f"<h3>{name}</h3>{_chart(shown, name)}" for name, shown in charts.items() if shown]
        parts.append(_table(head, [_cells(r) for r in here]))
    if compared := pairs(outcomes):
        cells = [
            [
                p["group"],
                f"{p['first']} / {p['second']}",
                *(str(p[k]) for k in ("cases", "only first", "only second", "p")),
            ]
            for p in compared
        ]
        parts.append("<h2>Pair by pair</h2>")
        parts.append(_table(["group", "A / B", "cases", "only A right", "only B right", "p (McNemar)"], cells))
    parts.append(f"<p>{escaping.escape(NOTE.replace('*', ''))}</p>")
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f"<title>{escaping.escape(title)}</title><style>{_STYLE}</style>{''.join(parts)}</html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th>{escaping.escape(c)}</th>" for c in head)
    body = "".join("<tr>" + "".join(f"<td>{escaping.escape(c)}</td>" for c in row) + "</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _chart(rows: Sequence[Row], name: str) -> str:
    """A bar a row, with its interval as a line."""
    left, width, step = 260, 420, 26
    height = step * len(rows) + 24
    out = [f'<svg width="{left + width + 80}" height="{height}" viewBox="0 0 {left + width + 80} {height}" role="img">']
    out.append(f"<title>{name}, by protocol and group</title>")
    for tick in (0, 0.25, 0.5, 0.75, 1):
        x = left + width * tick
        out.append(f'<line x1="{x}" x2="{x}" y1="0" y2="{height - 20}" stroke="currentColor" stroke-opacity=".15"/>')
        out.append(f'<text x="{x}" y="{height - 5}" text-anchor="middle">{tick:g}</text>')
    for i, row in enumerate(rows):
        rate = row[name]
        value, y = rate["hits"] / rate["of"], step * i + 4
        low, high = left + width * rate["low"], left + width * rate["high"]
        label = escaping.escape(f"{row['protocol']} · {row['group']}")
        out.append(f'<text x="{left - 8}" y="{y + 13}" text-anchor="end">{label}</text>')
        out.append(f'<rect x="{left}" y="{y}" width="{width * value:.1f}" height="18" fill="#4a7" fill-opacity=".75"/>')
        out.append(
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{y + 9}" y2="{y + 9}" stroke="currentColor" stroke-width="2"/>'
        )
        out.append(f'<text x="{max(high, left) + 6:.1f}" y="{y + 13}">{value:.2f}</text>')
    return "".join(out) + "</svg>"
