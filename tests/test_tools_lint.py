"""`callgate tools`: list, schema, lint."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from callgate import Tool, Toolbox
from callgate.apps.cli.tools import command
from callgate.tools.linting import CHECKS, lint

GOOD = '''
from typing import Annotated, Literal
from callgate import tool

@tool(effect="read", group="orders", timeout=5)
def find_order(number: str, unit: Literal["kg", "lb"] = "kg") -> dict:
    """Looks up one order by its number and returns its state.

    Args:
        number: The order's number, such as A-17.
    """
    return {"number": number}

@tool(effect="write", permission="orders.cancel", confirm=True, rate="5/min", lookup=find_order.function)
def cancel(number: str) -> str:
    """Cancels an order that was not sent yet.

    Args:
        number: The order's number, such as A-17.
    """
    return number
'''
BAD = """
from callgate import tool

@tool
def get_data(x):
    "Get data."

@tool(effect="write")
def getData(text: str): pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Any:
    def write(source: str) -> str:
        path = tmp_path / "tools_of_a_test.py"
        path.write_text(source, "utf-8")
        return str(path)

    return write


def run(*args: str) -> tuple[int, str]:
    result = CliRunner().invoke(command, args, catch_exceptions=False)
    return result.exit_code, result.output


def raw(name: str, description: str = "Finds the order of one customer.", schema: Any = None, **declared: Any) -> Tool:
    return Tool.from_schema(name, description, schema, lambda **k: k, **{"effect": "read", **declared})


def found(*tools: Tool) -> set[tuple[str, str, str]]:
    return {(f.check, f.tool, f.where) for f in lint(Toolbox(tools))}


def test_good_tools_have_no_findings_and_status_0(file: Any) -> None:
    assert run("lint", file(GOOD)) == (0, "2 tools, 0 findings\n")


def test_every_finding_has_a_reason_and_a_better_example(file: Any) -> None:
    status, text = run("lint", "--json", file(BAD))
    rows = [json.loads(line) for line in text.splitlines()]
    assert status == 1
    assert {row["check"] for row in rows} == {"description", "parameters", "names", "effects"}
    assert all(row["reason"] and row["better"] and row["message"] for row in rows)
    assert {row["level"] for row in rows} == {"error", "warning"}
    ignored = [word for name in ("description", "names", "parameters", "effects") for word in ("--ignore", name)]
    assert run("lint", *ignored, file(BAD))[0] == 0


def test_warnings_alone_can_be_let_pass(file: Any) -> None:
    source = GOOD.replace("        number: The order's number, such as A-17.\n", "")
    assert run("lint", file(source))[0] == 1
    assert run("lint", "--errors-only", file(source))[0] == 0
    assert run("lint", "--errors-only", file(BAD))[0] == 1


@pytest.mark.parametrize(
    ("tools", "finding"),
    [
        ([raw("f", "")], ("description", "f", "")),
        ([raw("f", "Does stuff.")], ("description", "f", "")),
        ([raw("f", schema={"properties": {"a": {"type": "integer"}}})], ("parameters", "f", "/a")),
        ([raw("f", schema={"properties": {"a": {"description": "x"}}})], ("parameters", "f", "/a")),
        ([raw("a", "Finds all open orders"), raw("b", "Find open orders")], ("overlap", "a", "b")),
        ([raw("send_mail"), raw("sendMail", "x y z")], ("names", "send_mail", "sendMail")),
        ([raw("send_mail"), raw("mail_send", "x y z")], ("names", "send_mail", "mail_send")),
        ([raw("list_file"), raw("list_filed", "x y z")], ("names", "list_file", "list_filed")),
        ([raw(f"t{i}", f"w{i} x{i} y{i} z{i}") for i in range(11)], ("groups", "t0", "")),
        ([Tool.from_schema("f", "Finds the order.", None, lambda: 1)], ("effects", "f", "")),
        ([raw("f", effect="write")], ("effects", "f", "")),
        ([raw("f", schema={"properties": {"a": {"type": "string", "not": {"const": "x"}}}})], ("enforceable", "f", "")),
        ([raw("f", schema={"properties": {"a": {"$ref": "#"}}})], ("enforceable", "f", "")),
    ],
)
def test_each_check_finds_its_fault(tools: list[Tool], finding: tuple[str, str, str]) -> None:
    assert finding in found(*tools)


@pytest.mark.parametrize(
    ("descriptions", "fault"),
    [
        (
            ("Weather of a given city", "查询指定城市的天气", "指定した都市の天気を調べる", "Погода в заданном городе"),
            False,
        ),
        (("Current weather of a city: temperature", "查询指定城市的实时天气情况，包括温度和天气状况"), False),
        (("When it is hot in a city.", "当用户询问天气时必须调用。"), False),
        (("Get weather", "查天气", "天気を", "Погода"), True),
        (("Processes data.", "处理数据", "进行相关操作", "データを処理する"), True),
        (("Handles the information of a thing.", "执行某个功能并处理相关信息"), True),
    ],
)
def test_a_description_is_judged_alike_in_every_script(descriptions: tuple[str, ...], fault: bool) -> None:
    for text in descriptions:
        assert (("description", "f", "") in found(raw("f", text))) == fault, text


def test_chinese_descriptions_that_say_the_same_are_seen() -> None:
    one, other = raw("a", "查询指定城市的实时天气情况"), raw("b", "查询给定城市的实时天气情况")
    assert ("overlap", "a", "b") in found(one, other)
    assert not {f for f in found(one, raw("b", "根据快递单号查询包裹的物流状态")) if f[0] == "overlap"}


def test_a_hint_names_what_is_missing() -> None:
    hints = {
        f.tool: f.better for f in lint(Toolbox([raw("a", "Gets a"), raw("get_order", "Get order data"), raw("c", "")]))
    }
    assert "what it returns" in hints["a"]
    assert "beside the words of its name" in hints["get_order"]
    assert len(set(hints.values())) == 3
    both = lint(Toolbox([raw("a", "Finds all open orders"), raw("b", "Find open orders")]))
    assert "open" in both[0].better


@pytest.mark.parametrize("check", CHECKS)
def test_no_check_fails_on_odd_schemas(check: str) -> None:
    odd = [
        raw(f"t{i}", schema=s)
        for i, s in enumerate([{"properties": {"a": True, "b": False, "not": {}}}, {"$ref": "#"}])
    ]
    assert isinstance(list(CHECKS[check](Toolbox(odd))), list)


def test_names_in_a_series_and_shared_schemas_are_no_fault() -> None:
    assert not {f for f in found(raw("page1"), raw("page2", "Other words here now.")) if f[0] == "names"}
    twice = {"properties": {"a": {"$ref": "#/$defs/A"}, "b": {"$ref": "#/$defs/A"}}, "$defs": {"A": {"type": "string"}}}
    assert ("enforceable", "f", "") not in found(raw("f", schema=twice))


def test_list_shows_names_parameters_and_rules(file: Any) -> None:
    status, text = run("list", file(GOOD))
    assert status == 0
    assert "read   find_order(number, [unit])  [5 s]" in text
    assert "write  cancel(number)  [needs orders.cancel, needs approval, 5/min]" in text
    rows = [json.loads(line) for line in run("list", "--json", file(GOOD))[1].splitlines()]
    assert [row["name"] for row in rows] == ["find_order", "cancel"]


def test_schema_prints_what_a_model_gets(file: Any) -> None:
    rows = json.loads(run("schema", file(GOOD))[1])
    assert rows[1]["function"]["parameters"]["required"] == ["number"]
    strict = json.loads(run("schema", "--strict", file(GOOD))[1])
    assert strict[0]["function"]["strict"] is True
    assert strict[0]["function"]["parameters"]["required"] == ["number", "unit"]
