"""Writes random texts of a grammar in llama.cpp's notation, as far as our own grammars use it."""

from __future__ import annotations

import random
import re
from typing import Any

_TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]|\{\d+,?\d*\}|[()|?*+]|[A-Za-z][\w-]*')
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_NAMED = {"n": "\n", "t": "\t", "r": "\r"}


class Grammar:
    """The rules of a grammar; `text` writes one of its texts."""

    def __init__(self, text: str) -> None:
        self.rules: dict[str, Any] = {}
        for line in text.split("\n"):
            if line.strip():
                name, _, body = line.partition(" ::= ")
                assert re.fullmatch(r"[a-zA-Z0-9-]+", name), name
                assert name not in self.rules, f"{name} twice"
                tokens = _TOKEN.findall(body)
                assert "".join(tokens) == re.sub(r'\s+(?=(?:[^"]*"[^"]*")*[^"]*$)', "", body) or '"' in body
                self.rules[name] = _alternatives(tokens)
                assert not tokens, (name, tokens)
        missing = {n for rule in self.rules.values() for n in _names(rule)} - self.rules.keys()
        assert not missing, missing

    def text(self, seed: int) -> str:
        """One text; rules that lead to themselves are followed without recursion."""
        rng, out = random.Random(seed), list[str]()
        todo: list[Any] = [("rule", "root")]
        while todo:
            kind, value, *rest = todo.pop()
            match kind:
                case "rule":
                    todo.append(self.rules[value])
                case "either":
                    todo += reversed(rng.choice(value))
                case "literal":
                    out.append(value)
                case "class":
                    low, high = rng.choice(value)
                    out.append(chr(rng.randint(low, min(high, low + 60))))
                case "times":
                    least, most = rest
                    todo += [value] * rng.choice([least, rng.randint(least, most), min(most, least + 2)])
        return "".join(out)


def _names(node: Any) -> set[str]:
    kind, value, *_ = node
    if kind == "rule":
        return {value}
    if kind == "either":
        return {n for way in value for part in way for n in _names(part)}
    return _names(value) if kind == "times" else set()


def _alternatives(tokens: list[str]) -> Any:
    ways: list[list[Any]] = [[]]
    while tokens and tokens[0] != ")":
        token = tokens.pop(0)
        if token == "|":
            ways.append([])
        elif token == "(":
            ways[-1].append(_alternatives(tokens))
            assert tokens.pop(0) == ")"
        elif token[0] == "{":
            least, _, most = token[1:-1].partition(",")
            ways[-1][-1] = ("times", ways[-1][-1], int(least), int(most or least))
        elif token in ("?", "*", "+"):
            ways[-1][-1] = ("times", ways[-1][-1], int(token == "+"), 1 if token == "?" else 5)
        elif token[0] == '"':
            ways[-1].append(("literal", _unescaped(token[1:-1])))
        elif token[0] == "[":
            ways[-1].append(("class", _ranges(token[1:-1])))
        else:
            ways[-1].append(("rule", token))
    return ("either", ways)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_char, text)


def _char(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    return chr(int(code, 16)) if code else _NAMED.get(match[4], match[4])


def _ranges(text: str) -> list[tuple[int, int]]:
    negative = text.startswith("^")
    pieces = [
        _char(m) if m[0][0] == "\\" else m[0] for m in re.finditer(_ESCAPE.pattern + "|.", text[negative:], re.DOTALL)
    ]
    found: list[tuple[int, int]] = []
    while pieces:
        low = pieces.pop(0)
        if len(pieces) > 1 and pieces[0] == "-":
            found.append((ord(low), ord(pieces[1])))
            del pieces[:2]
        else:
            found.append((ord(low), ord(low)))
    if negative:
        return [(c, c) for c in (*range(32, 127), 0xE9, 0x57CE) if not any(a <= c <= b for a, b in found)]
    return found
