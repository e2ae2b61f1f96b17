"""`callgate eval` itself, with a scripted model."""

from __future__ import annotations

import json

from click.testing import CliRunner

from callgate import Replay, providers
from callgate.apps.cli import cli
from callgate.types import ModelInfo

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
LINE = {
    "request": "Weather in Oslo?",
    "tools": [{"name": "get_weather", "parameters": CITY}],
    "calls": [{"name": "get_weather", "arguments": {"city": "Oslo"}}],
}


def test_it_asks_reports_and_goes_on(tmp_path, monkeypatch):
    model = Replay(['{"tool": "get_weather", "args": {"city": "Oslo"}}'], info=ModelInfo("m", "replay"))
    monkeypatch.setattr(providers, "open", lambda name, **options: model)
    cases, out = tmp_path / "cases.jsonl", tmp_path / "out.jsonl"
    cases.write_text(json.dumps(LINE) + "\n")
    words = ["eval", str(cases), "-p", "json", "--out", str(out)]
    for ending in ("md", "json", "html"):
        words += ["--report", str(tmp_path / f"r.{ending}")]
    done = CliRunner().invoke(cli, words)
    assert done.exit_code == 0, done.output
    assert "| json | own | 1 | 1.00" in done.output
    assert json.loads((tmp_path / "r.json").read_text())["rows"][0]["right arguments"]["hits"] == 1
    assert (tmp_path / "r.md").read_text() in done.output
    assert "<svg" in (tmp_path / "r.html").read_text()
    again = CliRunner().invoke(cli, words)
    assert again.exit_code == 0, again.output
    assert len(model.requests) == 1


def test_progress_shows_without_a_terminal(capsys):
    from callgate.apps import output

    with output.progress(40, lambda done: f"{done} of 40 asked") as show:
        for done in range(1, 41):
            show(done)
    lines = capsys.readouterr().err.split("\n")
    assert lines[:2] == ["4 of 40 asked", "8 of 40 asked"]
    assert len(lines) == 11


def test_a_slow_model_shows_progress_before_a_tenth_is_done(capsys):
    from callgate.apps import output

    now = 0.0
    with output.progress(400, lambda done: f"{done} of 400 asked", clock=lambda: now) as show:
        for done in range(1, 8):
            now += output.QUIET / 3
            show(done)
    assert capsys.readouterr().err.split("\n") == ["3 of 400 asked", "6 of 400 asked", ""]
