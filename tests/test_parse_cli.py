"""`callgate parse`: a recording or a raw answer, from a file or stdin, as JSON."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from callgate.apps.cli import main
from callgate.apps.cli import parse as parse_module

CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "北京"}}\n</tool_call>'
TEXT = f"今天 <b>好</b>\n{CALL}\n"
TOOLS = [{"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}]


class Run:
    """Runs `callgate parse` in this process."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._patch = monkeypatch
        self._capsys = capsys

    def __call__(self, *args: str, stdin: bytes = b"") -> tuple[int, str, str]:
        self._patch.setattr(sys, "argv", ["callgate", "parse", *args])
        self._patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as exit_:
            main()
        out, err = self._capsys.readouterr()
        return int(exit_.value.code or 0), out, err

    def reply(self, *args: str, stdin: bytes = b"") -> dict[str, Any]:
        """The printed reply of a run that went well."""
        status, out, err = self(*args, stdin=stdin)
        assert (status, err) == (0, "")
        return dict(json.loads(out))


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(monkeypatch, capsys)


def test_the_reply_is_printed_as_json(run: Run, tmp_path: Path) -> None:
    """All of it, with non-ASCII text as it is."""
    file = tmp_path / "answer.txt"
    file.write_text(TEXT, "utf-8")
    reply = run.reply("--dialect", "hermes", str(file))
    assert reply["content"] == "今天 <b>好</b>"
    assert reply["calls"] == [
        {
            "id": "call_1",
            "name": "get_weather",
            "arguments": {"city": "北京"},
            "index": 0,
            "flags": [],
            "extra": {},
        }
    ]
    assert reply["finish"] == "tool_calls"
    assert "北京" in run("--dialect", "hermes", str(file))[1]


@pytest.mark.parametrize("chunks", [[], ["--chunks", "1"], ["--chunks", "7"], ["--chunks", "100000"]])
def test_cuts_do_not_matter(run: Run, chunks: list[str]) -> None:
    """Not even inside a character: stdin is decoded as it comes."""
    assert run.reply("--dialect", "hermes", *chunks, stdin=TEXT.encode()) == run.reply(
        "--dialect", "hermes", "-", stdin=TEXT.encode()
    )


def test_a_character_may_be_cut_by_a_block(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of five bytes end inside every second Chinese character."""
    monkeypatch.setattr(parse_module, "BLOCK", 5)
    assert run.reply("--dialect", "hermes", stdin=TEXT.encode())["calls"][0]["arguments"] == {"city": "北京"}


def test_events_are_json_lines_in_the_order_of_the_deltas(run: Run) -> None:
    """Text, fragments of the call, the call, the end; the fragments are the arguments."""
    status, out, _ = run("--dialect", "hermes", "--events", "--chunks", "4", stdin=TEXT.encode())
    events = [json.loads(line) for line in out.splitlines()]
    assert status == 0
    assert "".join(event["text"] for event in events if event["type"] == "text") == "今天 <b>好</b>"
    fragments = [event["arguments"] for event in events if event["type"] == "call_delta"]
    assert len(fragments) > 2
    assert json.loads("".join(fragments)) == {"city": "北京"}
    assert [event["type"] for event in events[-2:]] == ["tool_call", "finish"]


def test_without_a_dialect_it_is_seen_in_the_text(run: Run, tmp_path: Path) -> None:
    """`auto` is the default for text, and tells a call by the known tools."""
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS), "utf-8")
    reply = run.reply("--tools", str(tmp_path / "tools.json"), stdin=TEXT.encode())
    assert [call["name"] for call in reply["calls"]] == ["get_weather"]


@pytest.mark.parametrize("name", ["", ":get_weather"])
def test_the_tools_may_be_those_of_a_python_file(run: Run, tmp_path: Path, name: str) -> None:
    """The same file as for `callgate ask`."""
    code = "from callgate import tool\n\n@tool\ndef get_weather(city: str) -> str:\n    return city\n"
    (tmp_path / "mine.py").write_text(code, "utf-8")
    raw = b'{"name": "get_weather", "arguments": {"city": "Paris"}}'
    assert run.reply(stdin=raw)["calls"] == []
    assert run.reply("--tools", f"{tmp_path / 'mine.py'}{name}", stdin=raw)["calls"][0]["arguments"] == {
        "city": "Paris"
    }


def test_the_dialect_of_a_model_by_name_or_template(run: Run, tmp_path: Path) -> None:
    """`--model` and `--template` choose it."""
    raw = b"<tool_call>get_weather<arg_key>city</arg_key><arg_value>Paris</arg_value></tool_call>"
    template = tmp_path / "chat_template.jinja"
    template.write_text("{{ '<arg_key>' + key + '</arg_key>' }}", "utf-8")
    for choice in (("--model", "glm-4.6"), ("--template", str(template))):
        assert run.reply(*choice, stdin=raw)["calls"][0]["arguments"] == {"city": "Paris"}


def test_the_prompt_s_tail_decides_the_first_state(run: Run) -> None:
    """The prompt opened the thinking; \\n on the command line is a newline."""
    reply = run.reply("--dialect", "hermes", "--prompt-tail", "<think>\\n", stdin=b"hm\n</think>\nHello")
    assert (reply["reasoning"], reply["content"]) == ("hm", "Hello")


def test_an_api_s_body_with_and_without_a_dialect(run: Run) -> None:
    """`--wire` leaves the text alone unless a dialect is named."""
    lines = [{"message": {"content": piece}, "done": False} for piece in (CALL[:20], CALL[20:])]
    lines.append({"message": {"content": ""}, "done": True, "done_reason": "stop", "eval_count": 9})
    body = "".join(json.dumps(line) + "\n" for line in lines).encode()
    plain = run.reply("--wire", "ollama", stdin=body)
    assert (plain["content"], plain["calls"], plain["finish"]) == (CALL, [], "stop")
    read = run.reply("--wire", "ollama", "--dialect", "hermes", "--chunks", "3", stdin=body)
    assert (read["content"], read["calls"][0]["name"], read["finish"]) == ("", "get_weather", "tool_calls")
    assert read["usage"]["output"] == 9


def test_megabytes_at_once(run: Run) -> None:
    """Four megabytes of arguments come back whole."""
    text = json.dumps({"name": "write_file", "arguments": {"text": "气\n" * 1_000_000}}, ensure_ascii=False)
    reply = run.reply("--dialect", "hermes", stdin=f"<tool_call>{text}</tool_call>".encode())
    assert reply["calls"][0]["arguments"]["text"] == "气\n" * 1_000_000


def test_a_lone_surrogate_is_printed_as_an_escape(run: Run) -> None:
    """A model can write one; UTF-8 cannot."""
    raw = b'<tool_call>{"name": "get_weather", "arguments": {"city": "\\ud83d!"}}</tool_call>'
    assert run.reply("--dialect", "hermes", stdin=raw)["calls"][0]["arguments"] == {"city": "\ud83d!"}


def test_empty_input_is_an_empty_reply(run: Run) -> None:
    """Nothing was said."""
    reply = run.reply("--dialect", "hermes", stdin=b"")
    assert (reply["content"], reply["calls"], reply["finish"]) == ("", [], "stop")


@pytest.mark.parametrize(
    ("args", "stdin", "message"),
    [
        (["--dialect", "hermess"], b"", "hermess"),
        (["--dialect", "hermes", "/no/such/file"], b"", "/no/such/file: No such file or directory"),
        (["--dialect", "hermes", "/"], b"", "/: Is a directory"),
        (["--dialect", "hermes"], b"ab\xff\xfe", "stdin: not UTF-8 text (byte 2)"),
        (["--dialect", "hermes"], "ab气".encode()[:-1], "stdin: not UTF-8 text (byte 2)"),
        (["--tools", "/no/tools.json"], b"", "callgate: --tools: /no/tools.json: No such file or directory"),
        (["--tools", "/no/tools.py"], b"", "--tools /no/tools.py: no such file"),
        (["--template", "/no/template"], b"", "--template: /no/template: No such file or directory"),
    ],
)
def test_bad_input_is_one_clear_line(run: Run, args: list[str], stdin: bytes, message: str) -> None:
    """On stderr, with a status that is not 0, and never a traceback."""
    status, out, err = run(*args, stdin=stdin)
    assert status != 0
    assert out == ""
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "not JSON"),
        ("5", "expected a list of tools"),
        ('[{"description": "no name"}]', "no name"),
        ('{"tools": "x"}', "expected a list of tools"),
    ],
)
def test_a_bad_file_of_tools_is_one_clear_line(run: Run, tmp_path: Path, content: str, message: str) -> None:
    """It names the option, the file and what is wrong."""
    (tmp_path / "tools.json").write_text(content, "utf-8")
    status, _, err = run("--tools", str(tmp_path / "tools.json"), stdin=b"x")
    assert status != 0
    assert message in err
    assert err.count("\n") == 1


def test_unknown_options_and_values_are_refused(run: Run) -> None:
    """By click, with the usage and status 2."""
    assert run("--wire", "smoke-signals")[0] == 2
    assert run("--chunks", "0")[0] == 2
