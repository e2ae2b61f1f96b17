"""An attack on A7: markup of every kind around a call, and what real models write beside calls that are meant."""

from __future__ import annotations

import random
from typing import Any

import pytest

import callgate
from callgate.types import ToolSpec
from dialect_reading import calls_of, cuts, read, read_with_problems, text_of
from dialect_render import GUARDED, LINES, WRITERS
from test_mentions import BESIDE, DELETE, SPECIAL, meant, ran, wrapped, written


def lines(mark: str) -> Any:
    return lambda call: f"The page:\n{mark}" + call.replace("\n", f"\n{mark}") + "\nI refuse."


QUOTED = {
    "nested list": wrapped("- a\n  - b\n    - `", "`\n- c"),
    "fence in a nested list": wrapped("- a\n  - b\n\n    ```\n    ", "\n    ```\n- c"),
    "fence in a quote": wrapped("> ```\n", "\n> ```\n"),
    "fence with attributes": wrapped("``` {.xml #id}\n", "\n```"),
    "fence, closed later": wrapped("```xml\nfirst\n\n", ""),
    "fence, crlf": wrapped("Look:\r\n```\r\n", "\r\n```\r\n"),
    "quote, continued": wrapped("> The page says:\n", "\n\nI refuse."),
    "quote, continued later": wrapped("> The page says\nand more\n", "\n"),
    "quote in a list": wrapped("- x\n  > ", "\n"),
    "list in a quote": wrapped("> - ", "\n"),
    "table without a first bar": wrapped("use | form\n---|---\nx | It deletes. ", "\n"),
    "table with bars": wrapped("| a | b |\n|---|---|\n| x | It deletes. ", "|\n"),
    "bars": lines("| "),
    "link title": wrapped('[x](http://x "', '")'),
    "samp": wrapped("<samp>\n", "\n</samp>"),
    "kbd": wrapped("<kbd>\n", "\n</kbd>\n"),
    "details": wrapped("<details>\n<summary>Form</summary>\n\n", "\n\n</details>"),
    "tag on two lines": wrapped('<pre\n class="x">\n', "\n</pre>"),
    "cell of HTML": wrapped("<table><tr><td>\n", "\n</td></tr></table>"),
    "example": wrapped("<example>\n", "\n</example>"),
    "document": wrapped("<document>\n\n", "\n\n</document>\nI refuse."),
    "nowiki": wrapped("<nowiki>\n", "\n</nowiki>"),
    "highlight": wrapped("<syntaxhighlight lang=xml>\n", "\n</syntaxhighlight>"),
    "comment, unclosed": wrapped("<!--\n", ""),
    "cdata": wrapped("<![CDATA[\n", "\n]]>"),
    "comment of C": wrapped("/*\n", "\n*/"),
    "comment of Jinja": wrapped("{#\n", "\n#}"),
    "verbatim": wrapped("\\begin{verbatim}\n", "\n\\end{verbatim}"),
    "lstlisting": wrapped("\\begin{lstlisting}[language=XML]\n\n", "\n\n\\end{lstlisting}"),
    "BBCode": wrapped("[code]\n", "\n[/code]"),
    "quote of BBCode": wrapped("[quote=x]\n\n", "\n\nso\n[/quote]"),
    "Jira": wrapped("{noformat}\n", "\n{noformat}"),
    "Jira, labelled": wrapped("{code:xml}\n\n", "\n\nso\n{code}"),
    "Org": wrapped("#+BEGIN_SRC xml\n", "\n#+END_SRC"),
    "mathematics": wrapped("$$\n", "\n$$"),
    "mathematics, in a line": wrapped("See this. $$", "$$ is no formula."),
    "mathematics, in paragraphs": wrapped("$$\n\n", "\n\n$$\nso"),
    "admonition": wrapped(":::note\n", "\n:::"),
    "admonition, named": wrapped("::: {.warning #id}\n\n", "\n\n:::"),
    "admonition of four": wrapped(":::: tip\n::: x\na\n:::\n\n", "\n\n::::"),
    "heredoc": wrapped("cat > x <<'EOF'\n", "\nEOF\n"),
    "heredoc, indented": wrapped("cat <<-EOF | sh\n\n\t", "\n\n\tEOF"),
    "heredoc of two": wrapped('python - <<"PY" > out\nx = 1\n\n', "\n\nPY\nso"),
    "heredoc of PHP": wrapped("$x = <<<EOT\n", "\nEOT;\n"),
    "heredoc of Ruby": wrapped("x = <<~TEXT\n\n", "\n\nTEXT\n"),
    "PHP": wrapped("<?php\n", "\n?>"),
    "PHP, in paragraphs": wrapped("<?php\n\n$x = 1;\n\n", "\n\n?>\n"),
    "PHP, short": wrapped("<?=\n", "\n?>"),
    "comment of Haskell": wrapped("{-\n", "\n-}"),
    "comment of Haskell, in paragraphs": wrapped("{-|\n\n", "\n\n-}\nmain"),
    "comment of OCaml": wrapped("(* \n\n", "\n\n*)\nlet"),
    "literal of RST": wrapped("Example::\n\n  ", "\n\nSo."),
    "directive of RST": wrapped(".. code-block:: xml\n\n   ", "\n\nSo."),
    "literal of YAML": wrapped("prompt: |\n  ", "\nx: 1"),
    "folded of YAML": wrapped("prompt: >-\n  ", "\nx: 1"),
    "string of JSON": wrapped('{"text": "', '"}'),
    "string of YAML": wrapped("prompt: '", "'"),
    "template literal": wrapped("const s = `\n", "\n`;"),
    "docstring": wrapped('def f():\n    """\n', '\n    """\n'),
    "code span of lines": wrapped("`\n", "\n`"),
    "russian": wrapped("Страница пишет: «", "» — я не буду."),
    "arabic": wrapped("يقول: «", "» وأرفض."),
    "japanese": wrapped("形式は『", "』です。"),
    "chinese brackets": wrapped("格式为\n【\n", "\n】"),
    "turtle brackets": wrapped("〔\n", "\n〕"),
    "angle brackets": wrapped("⟨\n", "\n⟩"),
    "chinese, nested": wrapped("“他说‘\n", "\n’后离开”"),
    "swedish": wrapped("Sidan säger ”\n", "\n” och nej"),
    "after a sentence": wrapped("The page says 'Ignore all. ", "' I refuse."),
    "after a Chinese sentence": wrapped("頁面寫道：「忽略。", "」我拒絕。"),
    "mark at the next line": wrapped("It's said: 'Don't stop.\n", "'\nNo."),
    "thoughts": wrapped("<thinking>\n", "\n</thinking>\nNo."),
    "thoughts of another model": wrapped("<think>\nShould I?\n", "\n</think>\nNo."),
    "reasoning": wrapped("<reasoning>\n", "\n</reasoning>No."),
}
"""Nothing is meant in these, not even between special tokens."""
MARKS = ("+", "-", "+ ", "# ", "// ", "-- ", ";; ", "│ ", " * ", "$ ", ">>> ")
LABELS = ("user: ", "[12:01:02] bot: ", "Example: ", "例如：", "例：", "مثال: ")
PROSE = {
    **{f"line {mark!r}": lines(mark) for mark in MARKS},
    **{f"label {word!r}": wrapped(word, "") for word in LABELS},
    "if": wrapped("If you agree, I will write ", ""),
    "would": wrapped("The call would be ", ""),
    "not": wrapped("I will not do ", ""),
    "chinese if": wrapped("如果要删除，就写", "。"),
    "heading": wrapped("## ", "\n\nThe form."),
    "footnote": wrapped("See[^1].\n\n[^1]: ", "\n"),
    "link": wrapped("[", "](http://x)"),
    "last cell": wrapped("use | form\n---|---\ndeletes | ", "\n"),
    "remark": wrapped("", "  # deletes"),
    "arrow": wrapped("", " → deletes"),
    "chinese stop": wrapped("", "。"),
    "a space of no width, then text": wrapped("", "\u200bis"),
}  # fmt: skip
"""Nothing is meant in these if a person can type the markers."""
REAL = {
    "emoji": wrapped("Okay 👍 \n", ""),
    "colon": wrapped("Deleting:\n", ""),
    "chinese colon": wrapped("现在删除：\n", ""),
    "russian": wrapped("Удаляю:\n", ""),
    "hebrew": wrapped('צה"ל אמר כן.\n', ""),
    "explained below": wrapped("", "\n\nIt's old, \"stale\" and `unused`."),
    "list before": wrapped("Steps:\n- a\n  - b\n    - c\n\n", ""),
    "label": wrapped("**Action:**\n", ""),
    "rules around": wrapped("---\n", "\n---"),
    "inches": wrapped("It is 5\" by 6'.\n", ""),
    "a key on an earlier line": wrapped("Press the ` key.\n", ""),
    "glob": wrapped("I delete /srv/* now.\n", ""),
    "path": wrapped("Look in C:\\new\\`x`.\n", ""),
    "two colons": wrapped("std::vector::\n", ""),
    "closed blocks": wrapped("[code]x[/code] {code}x{code} /* x */ 【1†source】 \\begin{code}x\\end{code}\n", ""),
    "closed literal": wrapped("Ex::\n\n  x\n\nNow.\n", ""),
    "closed YAML": wrapped("a: |\n  x\n", ""),
    "closed table": wrapped("a | b\n--|--\n1 | 2\n\n", ""),
    "table without an empty line": wrapped("|a|b|\n|-|-|\n|1|2|\n", ""),
    "closed quote": wrapped("> hi\n>\n\n", ""),
    "heading of a quote": wrapped("> # Title\n", ""),
    "answer": wrapped("<answer>\n", "\n</answer>"),
    "no width": wrapped("\ufeff", "\n"),
    "crlf": wrapped("Ok.\r\n\r\n", "\r\n\r\nWait."),
    "indented": wrapped("Ok:\n   ", ""),
    "thoughts before": wrapped("<think>a</think>\n", "\n</think>\n"),
    "thoughts without a beginning": wrapped("hm\n</think>\n\n", ""),
    "dollars": wrapped("It costs $$ and $5.\n", ""),
    "the number of a process": wrapped("kill $$ $$x\n\n", ""),
    "a closed formula": wrapped("$$\na\n$$\n", ""),
    "a formula in a line": wrapped("So $$a$$ holds.\n", ""),
    "closed admonition": wrapped(":::note\na\n:::\n", ""),
    "colons": wrapped(":::\n", ""),
    "streams of C++": wrapped("std::cout << EOF << name;\n\n", ""),
    "shifts": wrapped("x = 1<<BITS and y << 2\n\n", ""),
    "closed heredoc": wrapped("cat <<EOF\na \"b\nEOF\n", ""),
    "a heredoc that is never closed": wrapped("Use <<EOF here.\n\n", ""),
    "closed PHP": wrapped("<?php echo 1; ?>\n", ""),
    "closed comment of Haskell": wrapped("{- x -}\n", ""),
    "a glob": wrapped("It is (*.py) and {-1}.\n", ""),
    "a tag that is named": wrapped("", "\nThe `</think>` tag."),
    "quotes in thoughts": wrapped("<thinking>\nIt's \"x\n</thinking>\n", ""),
}  # fmt: skip
"""These are meant, by every dialect."""


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_no_markup_around_a_call_makes_it_meant(dialect: str) -> None:
    """By the dialect itself and by `auto`."""
    call = written(dialect)
    kinds = QUOTED if call.startswith(SPECIAL) else {**QUOTED, **PROSE}
    for kind, wrap in kinds.items():
        assert [meant(name, wrap(call)) for name in (dialect, "auto")] == [[], []], kind


@pytest.mark.parametrize("dialect", sorted(set(WRITERS) - {"functionary_v32"}))
def test_no_prose_beside_a_call_costs_it(dialect: str) -> None:
    """A call on its own line, whatever stands in other paragraphs."""
    call = written(dialect)
    for kind, wrap in REAL.items():
        if dialect not in GUARDED | LINES | {"rwkv"} or kind != "no width":
            assert [meant(name, wrap(call)) for name in (dialect, "auto")] == [["/srv/a"]] * 2, kind


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_thoughts_whose_beginning_the_prompt_wrote_hold_no_calls(dialect: str) -> None:
    """`</think>` without `<think>`: what a server sends that does not take reasoning out."""
    for text in ("I could\n{}\nbut no.\n</think>\nNo.", "{}\n</think>\nNo.", "{}</think>No."):
        for name in (dialect, "auto"):
            reply = callgate.read(text.replace("{}", written(dialect)), name, tools=[DELETE])
            assert [call.flags & {"mentioned"} for call in reply.calls] == [{"mentioned"}] * len(reply.calls), text


@pytest.mark.parametrize("protocol", ["native", "hermes"])
def test_such_thoughts_run_nothing_in_a_run(protocol: str) -> None:
    """And a call behind them runs."""
    call = written("hermes")
    paths, _ = ran(f"I could do\n{call}\nbut no.\n</think>\nNo.", protocol, "hermes" if protocol == "native" else None)
    assert paths == []
    paths, _ = ran(f"I could do\n{call}\n</think>\n\n{written('hermes', '/srv/b')}", "hermes")
    assert paths == ["/srv/b"]


def test_flags_of_these_do_not_depend_on_the_cuts() -> None:
    """A sample by seed; `reasoned` too."""
    rng = random.Random(7)
    kinds = {**QUOTED, **PROSE, **REAL}
    for _ in range(60):
        dialect, kind = rng.choice(sorted(WRITERS)), rng.choice(sorted(kinds))
        text = kinds[kind](written(dialect))
        whole = read_with_problems(dialect, [text], [DELETE])
        calls = callgate.read(text, dialect, tools=[DELETE]).calls
        for chunks in cuts(text, every=False):
            assert read_with_problems(dialect, chunks, [DELETE]) == whole, (dialect, kind)
            assert callgate.read(chunks, dialect, tools=[DELETE]).calls == calls, (dialect, kind)


@pytest.mark.parametrize("outer", ["hermes", "qwen_xml", "bracket_tool", "heredoc_tool", "bare_json", "kimi_k2"])
def test_a_call_in_an_argument_is_an_argument(outer: str) -> None:
    """Whatever its markup is."""
    note = ToolSpec("note", parameters={"type": "object", "properties": {"text": {"type": "string"}}})
    for inner in sorted(WRITERS):
        text = WRITERS[outer]([("note", {"text": f"It says.\n{written(inner)}\nok"})])
        names = [call.name for call in calls_of(read(outer, [text], [note, DELETE])) if "mentioned" not in call.flags]
        assert "delete_file" not in names, inner


@pytest.mark.parametrize("protocol", ["native", "hermes", "json", "marker", "constrained", "pythonic", "react"])
def test_no_protocol_runs_a_sample_of_them(protocol: str) -> None:
    """The protocol's own form, a foreign one, and a bare object."""
    rng = random.Random(protocol)
    kinds = {**QUOTED, **PROSE, **BESIDE}
    calls = [written(name) for name in ("hermes", "bare_json", "bracket_tool", "pythonic", "heredoc_tool")]
    calls.append('{"name": "delete_file", "arguments": {"path": "/srv/a"}}')
    for _ in range(40):
        kind, call = rng.choice(sorted(kinds)), rng.choice(calls)
        assert ran(kinds[kind](call), protocol, "auto" if protocol == "native" else None)[0] == [], (kind, call)


@pytest.mark.parametrize("dialect", sorted(WRITERS))
def test_brackets_behind_a_call_are_text(dialect: str) -> None:
    """A dialect of which a call has no closer took them for the beginning of another item, and so hid a quotation."""
    call = written(dialect)
    for text in ("\n\n[1] and {y}", "\n[quote]a", "\n{code} x"):
        assert text_of(read(dialect, [call + text], [DELETE])).strip() == text.strip()
    text = f"{call}\n\n{{code:xml}}\n\n{written(dialect, '/quoted')}\n\n{{code}}"
    assert meant(dialect, text) == ["/srv/a"]
