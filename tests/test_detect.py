"""`detect`: the dialect of a model from its chat template or its name."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from callgate import dialects
from callgate.dialects import _detect, detect
from callgate.errors import UnknownDialect

CASES = Path(__file__).parent / "conformance"
ROWS = [json.loads(line) for line in (CASES / "templates.jsonl").read_text("utf-8").splitlines()]
TEMPLATES = sorted({(row["template"], row["dialect"]) for row in ROWS})

# The surroundings that a template writes once and a rendered call does not show.
AROUND = {
    "unsloth-Apriel-1.5.jinja": "[BEGIN FINAL RESPONSE] ... [END FINAL RESPONSE]",
    "meta-llama-Llama-3.1-8B-Instruct.jinja": "Environment: ipython",
    "meta-llama-Llama-3.2-3B-Instruct.jinja": "Environment: ipython",
    "meta-llama-Llama-3.3-70B-Instruct.jinja": '"parameters": dictionary of argument name and its value}',
}

NAMES = json.loads((CASES / "model_names.json").read_text("utf-8"))


@pytest.mark.parametrize(("template", "dialect"), TEMPLATES)
def test_every_template_s_name_gives_its_dialect(template: str, dialect: str) -> None:
    """With and without the file's suffix, in any case."""
    assert detect(model_name=template) == dialect
    assert detect(model_name=template.removesuffix(".jinja").upper()) == dialect


@pytest.mark.parametrize(("template", "dialect"), TEMPLATES)
def test_what_a_template_renders_gives_its_dialect(template: str, dialect: str) -> None:
    """A template holds the markers that it renders; here all that ours rendered stands for its text."""
    text = "".join(row["prompt_tail"] + row["raw"] for row in ROWS if row["template"] == template)
    assert detect(chat_template=AROUND.get(template, "") + text) == dialect


def test_the_markers_of_every_dialect_tell_it_from_all_others() -> None:
    """All calls of our own cases, dialect by dialect, against the whole table."""
    texts: dict[str, str] = defaultdict(str)
    for line in (CASES / "dialects.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        texts[row["dialect"]] += row["raw"]
    around = {"minimax_m1": "<beginning_of_sentence>", "functionary_v32": ">>>all\n", "xlam": ""}
    found = {name: detect(chat_template=around.get(name, "") + text) for name, text in texts.items()}
    assert found == {name: name for name in texts} | {
        "qwen25_coder": None,
        "bare_json": None,
        "xlam": None,
        "llm_jp_harmony": "harmony",
    }


@pytest.mark.parametrize(("dialect", "name"), [(dialect, name) for dialect in NAMES for name in NAMES[dialect]])
def test_well_known_names(dialect: str, name: str) -> None:
    """Ollama tags, repository ids and GGUF files; those under "" were taught no format that we know: no guess."""
    assert detect(model_name=name) == (dialect or None)


PARSERS = json.loads((CASES / "parser_names.json").read_text("utf-8"))


@pytest.mark.parametrize(("dialect", "name"), [(dialect, name) for dialect in PARSERS for name in PARSERS[dialect]])
def test_a_server_s_name_for_its_parser_names_the_dialect(dialect: str, name: str) -> None:
    """What vLLM's and SGLang's `--tool-call-parser` take, in any case and with any separators."""
    assert dialects.get(name).name == dialect
    assert dialects.get(f" {name.upper()}").name == dialect
    assert dialects.get(name.replace("_", "-")).name == dialect


@pytest.mark.parametrize("name", dialects.names())
def test_a_dialect_s_name_may_be_written_in_any_case_and_with_any_separators(name: str) -> None:
    assert dialects.get(name.upper().replace("_", "-")) is dialects.get(name)


@pytest.mark.parametrize("name", ["", " ", "nonsense", 7, None, b"hermes"])
def test_what_names_no_dialect_is_refused_in_words(name: Any) -> None:
    with pytest.raises(UnknownDialect, match="dialect"):
        dialects.get(name)


def test_the_template_is_asked_before_the_name() -> None:
    """A model may be served with another family's template; a template without tools leaves the name."""
    template = "{{- '<tool_call>' }}{{ '<arg_key>' + key + '</arg_key>' }}"
    assert detect(chat_template=template, model_name="llama3.1:8b") == "glm_xml"
    assert detect(chat_template="{{ messages[0].content }}", model_name="llama3.1:8b") == "llama3_json"
    assert detect(chat_template="{{ messages[0].content }}") is None
    assert detect() is None
    assert detect(chat_template="", model_name="") is None


@pytest.mark.parametrize(
    ("template", "dialect"),
    [
        # Markers that a template composes: the name of a tag in a macro, a suffix from a variable.
        ("{%- macro open_tag(tag) -%}{{- '<|open|>' + tag + '<|sep|>' -}}{%- endmacro -%}", "kimi_k3"),
        ("{%- set dsml = '｜DSML｜' -%}{{ '<' + dsml + 'invoke name=' }}", "deepseek_dsml"),
        ("{{ '<tool_calls' + HYTK + '>' }}{{ '<arg_key' + HYTK + '>' }}", "hunyuan_v3"),
        ("{{ role + '<|role_sep|>' }}{{ {'role': 'function call'} }}", "gigachat3"),
        # One family's token with another's text inside.
        ("'<｜tool▁call▁begin｜>' + tool['type'] + '<｜tool▁sep｜>' + name + '```json'", "deepseek_v3"),
        ("'<｜tool▁call▁begin｜>' + name + '<｜tool▁sep｜>' + arguments", "deepseek_v31"),
        ('{{- "[TOOL_CALLS] [" }}', "mistral_list"),
        ("{{- '[TOOL_CALLS]' + name + '[ARGS]' + arguments }}", "mistral_args"),
        ("'<|start_of_role|>assistant<|end_of_role|><|tool_call|>'", "granite3"),
        ("'<|start_of_role|>assistant' '<tool_call>' '</tool_call>'", "hermes"),
        ("'<|tool_call|>' + call + '<|/tool_call|>'", "phi4_tool_call"),
        # Ollama's own template language.
        ('{{ range .ToolCalls }}<tool_call>\n{"name": "{{ .Function.Name }}"}\n</tool_call>{{ end }}', "hermes"),
        (
            'Respond in the format {"name": function name, "parameters": dictionary of argument name and value}',
            "llama3_json",
        ),
    ],
)
def test_markers_as_templates_write_them(template: str, dialect: str) -> None:
    """What stands in one literal of a template is enough."""
    assert detect(chat_template=template) == dialect


def test_every_row_names_a_dialect_that_exists_and_every_dialect_can_be_found() -> None:
    """No row leads nowhere; only formats that people make up have no row."""
    by_name, by_template = {row[0] for row in _detect._NAMES}, {marks.dialect for marks in _detect._TEMPLATES}
    assert by_name | by_template <= set(dialects.names())
    known = {row["name"] for row in json.loads((CASES / "dialect_facts.json").read_text("utf-8"))}
    assert known - by_name - by_template == {"bare_json", "llm_jp_harmony"}


def test_the_table_of_the_docs_is_current() -> None:
    """docs/dialects.md lists every dialect as it is; scripts/dialect_table.py writes it."""
    script = Path(__file__).parent.parent / "scripts" / "dialect_table.py"
    made = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert (made.returncode, made.stderr) == (0, "")
