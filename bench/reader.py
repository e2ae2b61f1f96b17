"""The reader's benchmark: `python bench/reader.py [W1 W2 W3 W5 chunk wire live separate]`.

Every text is cut into chunks of 4 characters and read by the public `callgate.Reader`; the cost is CPU time a chunk,
beside the floor (an empty method call a chunk in the same loop), what people write by hand, and libraries; see
`_workloads` and `_peers`. The machine inside `Reader` is given beside it, marked "inner".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jiter

from _measure import Measured, Table, chunks_of, main, measure
from _peers import Empty, Separator, full_rescan_reader, library, rescan, rescan_reader
from _streams import openai_call, openai_text, pieces_of, sse
from _workloads import PROSE, RENDER, TAGS, TOOLS, prose, w1, w2, w3, w5
from callgate import Reader, dialects, formats, read
from callgate.liveview import LiveArguments
from callgate.separation import separate

DIALECTS = tuple(RENDER)
partial_json = partial(jiter.from_json, partial_mode="trailing-strings")


def _drive(make: Callable[[], Any], chunks: Sequence[str | bytes]) -> None:
    machine = make()
    for chunk in chunks:
        for _ in machine.feed(chunk):  # whoever reads a stream looks at what comes
            pass
    for _ in machine.finish():
        pass


def _ours(dialect: str) -> Callable[[], Reader]:
    return lambda: Reader(dialect, tools=TOOLS)


def _inner(dialect: str) -> Callable[[], Any]:
    return lambda: dialects.reader(dialect, tools=TOOLS)


def _both(dialect: str, chunks: list[str]) -> dict[str, Callable[[], object]]:
    """The public reader, the machine in it, and the floor."""
    makers = {"ours": _ours(dialect), "inner": _inner(dialect), "floor": Empty}
    return {name: partial(_drive, make, chunks) for name, make in makers.items()}


def _check(dialect: str, text: str, calls: int, *, last: dict[str, Any] | None = None) -> None:
    """A reader that reads nothing would be fast: the calls must be there."""
    reply = read(chunks_of(text), dialect, tools=TOOLS)
    found = reply.calls
    assert len(found) == calls, f"{dialect}: {len(found)} calls, not {calls}; problems: {reply.problems}"
    assert last is None or found[-1].arguments == last, f"{dialect}: wrong arguments"


def _per_chunk(measured: Measured, name: str, chunks: list[str]) -> str:
    return f"{measured.micros(name, len(chunks)):.2f} µs"


def _rows(table: Table, dialect: str, found: Measured, chunks: list[str], goal: float) -> None:
    """Beside the floor, and beside the machine inside."""
    cost = _per_chunk(found, "ours", chunks)
    table.at_most(f"{dialect}: of an empty method call", found.ratio("ours", "floor"), goal, cost=cost)
    inner = _per_chunk(found, "inner", chunks)
    table.at_most(f"{dialect}: of the inner machine (inner)", found.ratio("ours", "inner"), 1.3, cost=inner)


def table_w1() -> Table:
    """W1: prose with three calls."""
    table = Table("W1: 2,452 characters of Chinese and English prose with three calls")
    for dialect in DIALECTS:
        text = w1(dialect)
        _check(dialect, text, 3)
        chunks = chunks_of(text)
        works = _both(dialect, chunks) | {"plain": partial(rescan_reader, chunks, *TAGS[dialect])}
        if dialect == "hermes":
            works["full"] = partial(full_rescan_reader, chunks, *TAGS[dialect], partial_json)
            works["separator"] = partial(_drive, partial(Separator, *TAGS[dialect]), chunks)
        found = measure(works)
        _rows(table, dialect, found, chunks, 15)
        if dialect == "hermes":
            cost = _per_chunk(found, "separator", chunks)
            table.at_most("hermes: of the best separator by hand", found.ratio("ours", "separator"), 4, cost=cost)
            cost = _per_chunk(found, "full", chunks)
            table.at_least("hermes: cheaper than a full rescan", found.ratio("full", "ours"), 7, cost=cost)
        cost = _per_chunk(found, "plain", chunks)
        table.fact(f"{dialect}: cheaper than a plain rescan (tags only)", found.ratio("plain", "ours"), cost=cost)
    table.note("A full rescan searches the tags, parses the finished calls and, with jiter, the open one.")
    table.note("The separator by hand tells text from calls and does nothing else: no JSON, no names, no errors.")
    return table


def table_w2() -> Table:
    """W2: one long string argument."""
    table = Table("W2: one call whose string argument has 1 k … 1 M characters")
    sizes = (1_000, 10_000, 100_000, 1_000_000)
    for dialect in DIALECTS:
        cut = {size: chunks_of(w2(dialect, size)) for size in sizes}
        _check(dialect, w2(dialect, 1_000), 1, last={"path": "a.txt", "text": prose(1_000)})
        works = {str(size): partial(_drive, _ours(dialect), chunks) for size, chunks in cut.items()}
        big = cut[1_000_000]
        found = measure(
            works | {"inner": partial(_drive, _inner(dialect), big), "floor": partial(_drive, Empty, big)}, rounds=5
        )
        cost = {size: found.micros(str(size), len(chunks)) for size, chunks in cut.items()}
        shown = " ".join(f"{cost[size]:.2f}" for size in sizes) + " µs"
        growth = found.ratio("1000000", "1000") * len(cut[1_000]) / len(big)
        table.at_most(f"{dialect}: a chunk at 1 M against 1 k", growth, 1.2, cost=shown)
        table.at_most(f"{dialect}: of an empty method call, at 1 M", found.ratio("1000000", "floor"), 25, cost=shown)
        inner = _per_chunk(found, "inner", big)
        table.at_most(f"{dialect}: of the inner machine (inner)", found.ratio("1000000", "inner"), 1.3, cost=inner)
    chunks = chunks_of(w2("hermes", 100_000))
    found = measure(
        {
            "ours": partial(_drive, _ours("hermes"), chunks),
            "plain": partial(rescan_reader, chunks, *TAGS["hermes"]),
            "separator": partial(_drive, partial(Separator, *TAGS["hermes"]), chunks),
        },
        rounds=3,
    )
    cost_100k = _per_chunk(found, "ours", chunks)
    table.at_least("hermes: cheaper than a plain rescan, at 100 k", found.ratio("plain", "ours"), 8, cost=cost_100k)
    cost = _per_chunk(found, "separator", chunks)
    table.at_most("hermes: of the best separator by hand, at 100 k", found.ratio("ours", "separator"), 4, cost=cost)
    return table


def _against_floor(title: str, text_of: Callable[[str], str], calls: int, goal: float) -> Table:
    table = Table(title)
    for dialect in DIALECTS:
        text = text_of(dialect)
        _check(dialect, text, calls)
        chunks = chunks_of(text)
        works = _both(dialect, chunks)
        if dialect == "hermes":
            works["separator"] = partial(_drive, partial(Separator, *TAGS[dialect]), chunks)
        found = measure(works)
        _rows(table, dialect, found, chunks, goal)
        if dialect == "hermes":
            cost = _per_chunk(found, "separator", chunks)
            table.at_most("hermes: of the best separator by hand", found.ratio("ours", "separator"), 4, cost=cost)
    return table


def table_w3() -> Table:
    """W3: prose with stray markers."""
    return _against_floor("W3: 100 k characters of prose with stray `<` and `{`", w3, 0, 8)


def table_w5() -> Table:
    """W5: eight calls."""
    return _against_floor("W5: eight calls at once", w5, 8, 25)


def table_chunk() -> Table:
    """One big chunk."""
    table = Table("One chunk of 100 k characters")
    for dialect in DIALECTS:
        text = w2(dialect, 100_000)
        arguments = json.dumps({"path": "a.txt", "text": prose(100_000)}, ensure_ascii=False)
        found = measure(_both(dialect, [text]) | {"loads": partial(json.loads, arguments)})
        cost = f"{found.micros('ours'):.0f} µs"
        table.at_most(f"{dialect}: of json.loads of the arguments", found.ratio("ours", "loads"), 2.5, cost=cost)
        inner = f"{found.micros('inner'):.0f} µs"
        table.at_most(f"{dialect}: of the inner machine (inner)", found.ratio("ours", "inner"), 1.3, cost=inner)
    return table


def _load(pieces: list[bytes]) -> list[Any]:
    form = formats.get("openai")
    framing, loader = form.framing(), form.Loader()
    out: list[Any] = []
    for piece in pieces:
        for record in framing.feed(piece):
            out += loader.feed(record)
    return out + loader.finish()


def table_wire() -> Table:
    """The same through a wire."""
    table = Table('`Reader(wire="openai")` beside framing and loader alone (pieces of 1 to 256 bytes)')
    for what, records in (("text", openai_text(300)), ("a call", openai_call(100))):
        pieces = pieces_of(sse(records))
        found = measure(
            {
                "ours": partial(_drive, partial(Reader, wire="openai"), pieces),
                "dialect": partial(_drive, partial(Reader, "hermes", wire="openai"), pieces),
                "inner": partial(_load, pieces),
            }
        )
        cost = f"{found.micros('ours', len(records)):.2f} µs a record"
        table.at_most(f"{what}: of the loader (inner)", found.ratio("ours", "inner"), 1.3, cost=cost)
        cost = f"{found.micros('dialect', len(records)):.2f} µs a record"
        table.fact(
            f"{what}, watched for leaked calls: of the loader (inner)", found.ratio("dialect", "inner"), cost=cost
        )
    return table


def _live(chunks: list[str]) -> Any:
    view = LiveArguments()
    for chunk in chunks:
        view.feed(chunk)
        _ = view.value
    return view.value


def _partial(parse: Callable[[bytes], Any], chunks: list[bytes]) -> Any:
    text, value = b"", None
    for chunk in chunks:
        text += chunk
        value = parse(text)
    return value


CONTENTS = {
    "prose": PROSE,
    "ASCII without escapes": "The museum opens at nine and the bus stops right in front of it. ",
    "code": 'def area(width, height):\n    """Square metres."""\n    return width * height\n\n',
}


def table_live() -> Table:
    """The live view."""
    import pydantic_core

    table = Table("Live view: the arguments as Python values after every fragment of 4 characters")
    parser = library("partial_json_parser", "partial-json-parser")
    for what, unit in CONTENTS.items():
        for size, goal in ((8_000, 7), (100_000, 100)):
            text = json.dumps({"path": "a.txt", "text": (unit * (size // len(unit) + 1))[:size]}, ensure_ascii=False)
            chunks = chunks_of(text)
            raw = [chunk.encode() for chunk in chunks]
            assert _live(chunks) == json.loads(text) == _partial(partial_json, raw)
            works = {"ours": partial(_live, chunks), "jiter": partial(_partial, partial_json, raw)}
            if size == 8_000 and what == "prose":
                pydantic = partial(pydantic_core.from_json, allow_partial="trailing-strings")
                works["pydantic_core"] = partial(_partial, pydantic, raw)
                if parser:
                    works["partial-json-parser"] = partial(_partial, lambda raw: parser.loads(raw.decode()), raw)
            found = measure(works, rounds=3)
            cost = _per_chunk(found, "ours", chunks)
            row = partial(table.at_least, goal=goal) if what == "prose" else table.fact
            row(f"{what}, {size // 1000} k: cheaper than jiter", found.ratio("jiter", "ours"), cost=cost)
            for name in list(works)[2:]:
                table.fact(f"{what}, {size // 1000} k: cheaper than {name}", found.ratio(name, "ours"), cost=cost)
    table.note("jiter reads ASCII without a single escape by copying memory: its best case, given beside.")
    return table


def _grow(split: Callable[[str, str, str], Any], chunks: list[str], tags: tuple[str, str]) -> Any:
    text, parts = "", None
    for chunk in chunks:
        text += chunk
        parts = split(text, *tags)
    return parts


def table_separate() -> Table:
    """The stateless form."""
    table = Table("`separate` after every chunk of W1")
    chunks, tags = chunks_of(w1("hermes")), TAGS["hermes"]
    assert _grow(separate, chunks, tags) == _grow(rescan, chunks, tags)
    found = measure({"ours": partial(_grow, separate, chunks, tags), "plain": partial(_grow, rescan, chunks, tags)})
    cost = _per_chunk(found, "ours", chunks)
    table.at_most("of the plain rescan", found.ratio("ours", "plain"), 1, cost=cost)
    return table


if __name__ == "__main__":
    main(
        {
            "W1": table_w1,
            "W2": table_w2,
            "W3": table_w3,
            "W5": table_w5,
            "chunk": table_chunk,
            "wire": table_wire,
            "live": table_live,
            "separate": table_separate,
        }
    )
