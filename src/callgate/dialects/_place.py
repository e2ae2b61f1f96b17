"""Where in a text a call stands: whether it is meant there, or only mentioned (A7).

Law: the answer depends on the characters before the call alone, never on where a chunk ended, and each character is
looked at once. (tests/test_mentions.py::test_flags_do_not_depend_on_the_cuts)

Theory of operation. Text is only collected while it streams (`pieces`); it is read when a call begins, up to there.
1. What stands before a call on its line decides whether the line is the call's: nothing visible, or the end of a
   sentence.
2. Containers hold what they hold, whatever the line: a fence, a comment, indented code, a blockquote with the lines
   that continue it, a table cell, a code span, an element for code or quotations (HTML, LaTeX, BBCode, Jira, Org, PHP),
   a formula, an admonition, a here-document, an indented literal of reStructuredText or YAML, quotation marks.
3. A container that began in an earlier paragraph (a code span: on an earlier line) and could be a slip (a quotation
   mark, a tag) counts only if it is closed after the call: `Where.waits` names it, `closed` answers once the message is
   over.
4. What stands in a closed code span or element opens no quotation.
5. Reasoning between tags that the dialect does not know holds a call if it closes after it. So does reasoning that the
   prompt opened: at the first closer that nothing opened, all calls before it were thoughts (`reasoned`).
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from typing import Final, NamedTuple

OBJECT: Final = "\ufffc"
"""Stands for the markup of a call where the character beside a quotation mark is asked for."""
NESTED: Final = 32
"""Containers open at once; a text with more is no prose, and the outermost is forgotten."""
HEAD: Final = 48
TAIL: Final = 48
"""Characters of a line that are kept from its start and its end: enough for list marks, sentence ends and
abbreviations."""

# Unicode's property Sentence_Terminal, the ellipses, and the Greek question mark.
_ENDERS: Final = re.compile(
    "[!.?\u037e\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104a\u104b\u1362"
    "\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1c3b"
    "\u1c3c\u1c7e\u1c7f\u2026\u203c\u203d\u2047-\u2049\u22ef\u2e2e\u2e3c\u2e53\u2e54\u3002\ua4ff\ua60e\ua60f\ua6f3"
    "\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe52\ufe56\ufe57\uff01\uff0e"
    "\uff1f\uff61]\\Z"
)
_AFTER_SENTENCE: Final = "\"'”’“‘»›」』〞〟｣﹂﹄❞❜＂＇)]}）］】*_~"
_ABBREVIATION: Final = re.compile(
    r"(?:^|[\s(\[,;:])(?:e\.\s?g|i\.\s?e|z\.\s?b|d\.\s?h|u\.\s?a|p\.\s?ex|p\.\s?ej|t\.\s?ex|par ex|por ej|v\.gr|cf"
    r"|vs|viz|bzw|bijv|bv|tj|tzn|np|т\.\s?е|напр)\.\Z",
    re.IGNORECASE,
)
_LIST_MARK: Final = re.compile(r"\s*(?:[>|]\s*)*\(?(?:\d{1,4}|[a-zA-Z]|[ivxIVX]{1,6})[.)]\s*\Z")
_FENCE: Final = re.compile(
    r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+|>[ \t]?)*(?:(`{3,})[^`\n]*|(~{3,})[^\n]*|(:{3,})[ \t]*[\w{][^\n]*)\Z"
)
"""CommonMark 4.5; and Pandoc's fenced divisions, in which Docusaurus and MyST write admonitions."""
_FENCE_END: Final = re.compile(r"[ \t]*(?:>[ \t]?)*(`{3,}|~{3,}|:{3,})[ \t]*\r?\Z")
_INDENTED: Final = re.compile(r" {0,3}(?: {4}|\t)")
_QUOTED_LINE: Final = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*[>|]")
_QUOTED_TEXT: Final = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)*(?:>[ \t]*)+(?![`~]{3}|[#|]|-{3}|\*{3})[^>\s]")
"""A line of a blockquote that ends in a paragraph: lines without `>` continue it (CommonMark 5.1, laziness)."""
_DELIMITER_ROW: Final = re.compile(r"[ \t|:-]*\|[ \t|:-]*\Z")
_LITERAL: Final = re.compile(r"(?:::|:[ \t]+[|>][+-]?\d?)[ \t\r]*\Z")
_DIRECTIVE: Final = re.compile(r"[ \t]*\.\. [\w-]+::")
"""What an indented block is literal after: reStructuredText's `::` and directives, YAML's `|` and `>`."""
_IN_VISIBLE: Final = "\u00ad\u200b-\u200f\u2060-\u2064\ufeff"
_VISIBLE: Final = re.compile(rf"[^\s{_IN_VISIBLE}]")

_CLOSERS: Final = {
    '"': '"', "＂": "＂", "'": "'", "＇": "＇", "“": "”", "‘": "’", "„": "“”\"", "‚": "‘’'", "‟": "”", "‛": "’",
    "”": "”", "’": "’", "«": "»", "»": "«»", "‹": "›", "›": "‹›", "「": "」", "『": "』", "〝": "〞〟", "｢": "｣",
    "﹁": "﹂", "﹃": "﹄", "《": "》", "〈": "〉", "❝": "❞", "❛": "❜", "⹂": "“”",
    "【": "】", "〖": "〗", "〔": "〕", "⟨": "⟩",
}  # fmt: skip
"""Quotation marks of all scripts (Unicode's Quotation_Mark, the marks of titles, brackets that quote in Chinese and
Japanese), with what closes each."""
_EITHER: Final = frozenset("\"＂'＇”’»›")
"""Those that open or close by what stands beside them."""
_APOSTROPHES: Final = frozenset("'＇’")
_CLIPPED: Final = re.compile(r"(?:s|t|n|m|k|r|d|ll|re|ve|tis|twas|em|til|cause|bout|round|\d\ds?)\b", re.IGNORECASE)
"""Words that begin with an apostrophe and no quotation: 'tis, '90s, Dutch 's and 't."""
_ELEMENT: Final = (
    "code|pre|samp|kbd|tt|blockquote|q|xmp|textarea|script|listing|plaintext|template|style|cite|details|td|th|table"
    "|nowiki|syntaxhighlight|source|examples?|quote|documents?|excerpt|snippet|sample|transcript|webpage|email"
)
"""Elements of HTML and MediaWiki for code, quotations and cells, and the tags that prompts put around documents."""
_PAIRS: Final = {"/*": "*/", "{#": "#}", "<![cdata[": "]]>", "{-": "-}", "(*": "*)", "<?": "?>"}
_ENDS_OF: Final = {"tex": "\\end{%s}", "bb": "[/%s]", "org": "#+end_%s", "jira": "{%s}"}
"""What closes a block of LaTeX, BBCode, Org and Jira; Jira's closer is its opener."""
_BB: Final = "code|quote|pre|noparse"
_ORG: Final = "src|example|quote|verse|comment"
_BLOCK: Final = (
    rf"(?P<end>\\end\{{\w+\*?\}}|\[/(?:{_BB})\]|\#\+end_(?:{_ORG})\b|\]\]>|\*[/)]|\#\}}|-\}}(?!\}})|\?>)"
    r"|\\begin\{(?P<tex>verbatim|lstlisting|minted|alltt|code|comment|quote|quotation|displayquote)\*?\}"
    rf"|\[(?P<bb>{_BB})(?:=[^\]\n]*)?\]|\#\+begin_(?P<org>{_ORG})\b|\{{(?P<jira>code|noformat|quote)(?::[^}}\n]*)?\}}"
    r"|(?P<pair>(?<!\S)/\*(?=[\s*]|\Z)|\{\#(?=\s|\Z)|<!\[CDATA\[|(?<!\{)\{-(?=[\s|#]|\Z)"
    r"|\(\*(?=\s|\Z)|<\?(?=php\b|=|xml\b))"
)
_THOUGHTS: Final = "think|thinking|thoughts?|reasoning|reflection|scratchpad"
"""Tags around reasoning, of models that are read with a dialect that has none or others."""
_THOUGHT_ENDS: Final = "</think></thinking></thought></thoughts></reasoning></reflection></scratchpad>[/think]"
_TRIPLE: Final = ('"' * 3, "'" * 3)
"""Strings of many lines, as Python writes them: what opens one closes it."""
_MARKS: Final = re.escape("".join({*_CLOSERS, *"".join(_CLOSERS.values())}))
_TOKEN: Final = re.compile(
    _BLOCK + rf"|</?(?P<thought>{_THOUGHTS})>|\[/?(?P<think>THINK)\]"
    rf"|\\.|`+|<!--|<(?:{_ELEMENT})(?=>|\s[^<>\n]*>|\s*\Z)|</(?:{_ELEMENT})\s*>|{'|'.join(_TRIPLE)}|\$\$|[{_MARKS}]",
    re.IGNORECASE,
)
_COMMENT_END: Final = "-->"
_HEREDOC: Final = re.compile(
    r"(?<!\S)<<<?[-~]?(?:(?P<mark>['\"])(?P<quoted>\w{1,32})(?P=mark)|\\?(?P<bare>[A-Z_][A-Z0-9_]{1,31})\b)"
)
"""The operator before a here-document (POSIX shell 2.7.4, Ruby, PHP) and the word that ends it. A bare word counts in
capitals only, and right behind the sign: `cout << name` is C++."""
_FORMULA: Final = "$$"
_ALERT: Final = re.compile(
    rf"\$\$|:::|\{{-|\(\*|[`<\\>|{re.escape(''.join(set(_CLOSERS) - _APOSTROPHES))}]|\[/?\w|\{{\w|\{{#|#\+|/\*"
)
_QUOTING_APOSTROPHE: Final = re.compile(rf"(?<!\w)[{''.join(sorted(_APOSTROPHES))}]")


def _is_plain(text: str) -> bool:
    """Whether no container can begin in this text: then it is passed over, up to its last line.

    One class of characters is searched in a tenth of the time that alternatives take, and `in` is faster still.
    """
    if "~~~" in text or "\n " in text or "\n\t" in text or _ALERT.search(text):
        return False
    return not any(mark in text for mark in _APOSTROPHES) or _QUOTING_APOSTROPHE.search(text) is None


@dataclass(slots=True, frozen=True)
class Where:
    """What the text before a call tells of it."""

    fits: bool
    """The line is the call's: it begins there, or follows the end of a sentence."""
    inside: bool
    """It stands in a container: only mentioned."""
    waits: tuple[int, ...] = ()
    """Containers of earlier paragraphs in which it stands if they are closed later."""


class _Open:
    """An open container: what closes it, and where it began."""

    __slots__ = ("closers", "id", "mark", "paragraph")

    def __init__(self, mark: str, closers: str, id: int, paragraph: int) -> None:
        self.mark = mark
        self.closers = closers
        self.id = id
        self.paragraph = paragraph


class _Span(NamedTuple):
    """A code span that began: how many backticks end it, what was open before it."""

    ticks: int
    open: list[_Open]
    id: int
    here: bool = True
    """It began on this line; then it counts unclosed, too: the message may have stopped at a quoted end of turn."""


class Place:
    """The text of one kind (content or reasoning) so far, as far as it tells where a call stands."""

    __slots__ = (
        "_blank", "_call", "_calls", "_code", "_comment", "_count", "_fence", "_head", "_header", "_lazy", "_literal",
        "_open", "_paragraph", "_piped", "_span", "_table", "_tail", "_thought", "_visible", "_watched", "closed",
        "pieces", "reasoned",
    )  # fmt: skip

    def __init__(self) -> None:
        self.pieces: list[str] = []
        """Text that was not read yet."""
        self.closed: set[int] = set()
        """The containers that calls waited for and that were closed."""
        self.reasoned = 0
        """So many calls from the first on stood in reasoning that the prompt opened (rule 5)."""
        self._calls = 0
        self._thought = False
        self._watched: set[int] = set()
        self._fence = ""
        self._comment = False
        self._open: list[_Open] = []
        self._span: _Span | None = None
        self._count = 0
        self._paragraph = 0
        self._blank = False
        self._code = False
        self._lazy = False
        self._table = False
        self._piped = False
        self._literal = -1
        """The indentation of the line that an indented literal follows; -1: none."""
        self._head = ""
        self._tail = ""
        self._visible = False
        self._call = False
        self._header = False

    def copy(self) -> Place:
        """The same place, to come back to."""
        self._read(OBJECT)
        other = Place()
        for name in self.__slots__:
            value = getattr(self, name)
            setattr(other, name, value.copy() if isinstance(value, (list, set)) else value)
        return other

    def call(self) -> Where:
        """A call begins here."""
        self._read(OBJECT)
        self._call = True
        self._calls += 1
        old = tuple(each.id for each in self._open if each.paragraph < self._paragraph)
        waits = old if self._span is None else (*old, self._span.id)
        self._watched.update(waits)
        return Where(self._fits(), self._inside() or len(old) < len(self._open), waits)

    def header(self) -> None:
        """A message's header ends here: what follows begins something new, whatever stands before it on the line."""
        self._read(OBJECT)
        self._header = True

    def thinking(self) -> None:
        """A call in open reasoning comes; the dialect that reads it may not know the tag that closes it."""
        self._read(OBJECT)
        self._push("", _THOUGHT_ENDS, paragraph=-1)

    def thought(self, *, opened: bool) -> None:
        """Reasoning closes here; `opened`: in this message."""
        if not opened and not self._thought:
            self.reasoned = self._calls
        self._thought = True

    def settle(self) -> None:
        """The message is over: `closed` and `reasoned` are complete."""
        self._read("")
        self._end_document()

    # --- rules 1 and 2 ------------------------------------------------------------------------------------------

    def _fits(self) -> bool:
        if not self._visible or self._header:
            return True
        text = self._tail.rstrip()
        while text and (text[-1] in _AFTER_SENTENCE or _is_emoji(text[-1])):
            text = text[:-1].rstrip()
        if not _ENDERS.search(text) or _ABBREVIATION.search(text):
            return False
        return len(self._head) >= HEAD or not _LIST_MARK.match(self._head)

    def _inside(self) -> bool:
        if self._fence or self._comment or (self._span is not None and self._span.here):
            return True
        if self._lazy or _QUOTED_LINE.match(self._head) or (self._table and self._piped):
            return True
        return self._is_literal() or (not self._visible and self._is_code())

    def _is_literal(self) -> bool:
        return 0 <= self._literal < _indentation(self._head)

    def _is_code(self) -> bool:
        return (self._blank or self._code) and _INDENTED.match(self._head) is not None

    # --- reading ------------------------------------------------------------------------------------------------

    def _read(self, after: str) -> None:
        """All that was collected; `after` is what stands behind it."""
        if not self.pieces:
            return
        text = "".join(self.pieces)
        self.pieces.clear()
        start = 0
        plain = not (self._open or self._fence or self._comment or self._span) and _is_plain(text)
        if plain and (first := text.find("\n")) >= 0:
            self._part(text[:first], "\n", plain=True)
            self._end_line()
            start = text.rfind("\n") + 1
            if start > first + 1:
                self._skip(text[text.rfind("\n", 0, start - 1) + 1 : start - 1])
        while (end := text.find("\n", start)) >= 0:
            self._part(text[start:end], "\n")
            self._end_line()
            start = end + 1
        if start < len(text):
            self._part(text[start:], after, plain=plain)

    def _skip(self, last: str) -> None:
        """Lines without anything of note: of the last one it matters whether it was empty."""
        self._head, self._tail = last[:HEAD], last[-TAIL:]
        self._visible = _VISIBLE.search(last) is not None
        self._call = False
        self._end_line()

    def _part(self, text: str, after: str, *, plain: bool = False) -> None:
        """A part of one line. In `plain` text no container begins or ends."""
        if plain:
            self._remember(text)
            return
        first = not self._head and not self._call
        if first and self._fence_line(text, whole=after == "\n"):
            self._visible = True
        elif not self._fence:
            self._inline(text, after)
        self._remember(text)

    def _remember(self, text: str) -> None:
        self._head = self._head if len(self._head) >= HEAD else self._head + text[: HEAD - len(self._head)]
        self._tail = (self._tail + text[-TAIL:])[-TAIL:]
        self._piped = self._piped or "|" in text
        if _VISIBLE.search(text) is not None:
            self._visible = True
            self._call = self._header = False

    def _fence_line(self, text: str, *, whole: bool) -> bool:
        """Whether this is a line that begins or ends a fence."""
        if self._comment:
            return False
        if self._fence:
            found = _FENCE_END.match(text)
            if found is not None and found[1].startswith(self._fence):
                self._fence = ""
                return True
            return False
        found = _FENCE.match(text) if whole else None  # with a call behind it, it is a code span at most
        if found is None:
            return False
        self._fence = found[1] or found[2] or found[3]
        self._span = None
        return True

    def _end_document(self) -> None:
        """A line that is nothing but the word of a here-document ends it; PHP puts a semicolon behind."""
        if self._open and 0 < len(word := self._head.strip().rstrip(";")) < HEAD:
            self._close(f"\n{word}\n")

    def _end_line(self) -> None:
        self._end_document()
        if not (self._visible or self._call):
            self._blank = True
            self._paragraph += 1
            self._span = None  # a code span never crosses an empty line
            self._lazy = self._table = False
        else:
            self._code = self._is_code()
            self._blank = False
            self._span = self._span and self._span._replace(here=False)
            if self._visible and not self._fence:
                self._block_line()
        self._head = self._tail = ""
        self._visible = self._call = self._piped = False

    def _block_line(self) -> None:
        """What this line, which has text, makes of the next ones."""
        if _QUOTED_LINE.match(self._head):
            self._lazy = _QUOTED_TEXT.match(self._head) is not None
        if self._piped and "-" in self._head and _DELIMITER_ROW.match(self._head) and _DELIMITER_ROW.match(self._tail):
            self._table = True
        if found := _HEREDOC.search(self._head) or _HEREDOC.search(self._tail):
            word = found["quoted"] or found["bare"]
            self._push(found.group(), f"\n{word}\n")
        if not self._is_literal():
            begins = _LITERAL.search(self._tail) or _DIRECTIVE.match(self._head)
            self._literal = _indentation(self._head) if begins else -1

    def _inline(self, text: str, after: str) -> None:
        """Containers that begin or end within a line."""
        at = 0
        while True:
            if self._comment:
                end = text.find(_COMMENT_END, at)
                if end < 0:
                    return
                self._comment = False
                at = end + len(_COMMENT_END)
            found = _TOKEN.search(text, at)
            if found is None:
                return
            at = found.end()
            mark = found.group()
            if found.lastgroup is not None:
                self._block(found)
            elif mark[0] == "`":
                self._backticks(len(mark))
            elif mark == "<!--":
                self._comment = True
            elif mark[0] == "<":
                self._element(mark.lower())
            elif mark in _TRIPLE or mark == _FORMULA:
                self._either(mark, text, found.start())
            elif mark[0] != "\\":
                before = text[at - 2] if at > 1 else OBJECT if self._call else self._tail[-1:]
                self._quotation(mark, before, text[at] if at < len(text) else after, text, at)

    def _either(self, mark: str, text: str, at: int) -> None:
        """A mark that closes what it opened."""
        if not self._close(mark) and (mark != _FORMULA or self._begins_formula(text, at)):
            self._push(mark, mark)

    def _begins_formula(self, text: str, at: int) -> bool:
        """At the line's start, or between a blank and what is no blank: a price is before one, `$$` alone a process."""
        before, behind = text[:at] or (OBJECT if self._call else self._tail), text[at + len(_FORMULA) :]
        return not before.strip() or (before[-1].isspace() and (not behind or _FORMULA in behind))

    def _backticks(self, count: int) -> None:
        if self._span is None:
            self._count += 1
            self._span = _Span(count, self._open.copy(), self._count)
        elif self._span.ticks == count:  # rule 4
            self._open = self._span.open.copy()
            if self._span.id in self._watched:
                self.closed.add(self._span.id)
            self._span = None

    def _block(self, found: re.Match[str]) -> None:
        """A block of another markup begins or ends."""
        kind, mark = found.lastgroup or "", found.group().lower()
        if kind in ("thought", "think"):
            self._reasoning(mark)
        elif kind == "end":
            self._close(mark.replace("*}", "}"))
        elif kind == "pair":
            self._push(mark, _PAIRS[mark])
        else:
            end = _ENDS_OF[kind] % found.group(kind).lower()
            if kind != "jira" or not self._close(end):
                self._push(mark, end)

    def _reasoning(self, mark: str) -> None:
        """A tag around reasoning."""
        if "/" not in mark:
            self._push(mark, f"{mark[0]}/{mark[1:]}", paragraph=-1)
        elif self._close(mark):
            self._thought = True
        elif self._span is None:
            self.thought(opened=False)

    def _element(self, mark: str) -> None:
        if mark[1] == "/":
            self._close(f"</{mark[2:-1].strip()}>")
        else:
            self._push(mark, f"</{mark[1:]}>")

    def _quotation(self, mark: str, before: str, after: str, text: str, at: int) -> None:
        opens = mark in _CLOSERS and (mark not in _EITHER or _may_open(mark, before, after, text, at))
        if opens and after == "\n" and any(each.mark == mark for each in self._open):
            opens = False  # at a line's end the second one closes
        if _may_close(mark, before, after, opens=opens) and self._close(mark):
            return
        if opens:
            if mark in _EITHER:  # the same mark once more: the one before was none
                self._open = [each for each in self._open if each.mark != mark]
            self._push(mark, _CLOSERS[mark])

    def _push(self, mark: str, closers: str, *, paragraph: int | None = None) -> None:
        self._count += 1
        self._open.append(_Open(mark, closers, self._count, self._paragraph if paragraph is None else paragraph))
        if len(self._open) > NESTED:
            del self._open[0]

    def _close(self, mark: str) -> bool:
        """Close the innermost container that this closes, with all that was left open in it."""
        for n in range(len(self._open) - 1, -1, -1):
            if mark in self._open[n].closers:
                if self._open[n].id in self._watched:
                    self.closed.add(self._open[n].id)
                del self._open[n:]
                return True
        return False


def _may_open(mark: str, before: str, after: str, text: str, at: int) -> bool:
    if not after or (after.isspace() and after != "\n") or (mark in _APOSTROPHES and _CLIPPED.match(text, at)):
        return False
    if after == "\n" and before and not (before.isspace() or before in ":："):
        return False
    return not before or before.isspace() or before in "([{<:,;=/—–-*_|>" or ord(before) >= 0x2E80  # no blanks in CJK


def _may_close(mark: str, before: str, after: str, *, opens: bool) -> bool:
    if mark in _APOSTROPHES:
        if not after or after.isspace():
            return True
        return bool(before) and not before.isspace() and (not after.isalnum() or ord(after) >= 0x2E80)
    if mark in '"＂':
        return not opens or (bool(before) and not before.isspace())
    return True


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" \t"))


def _is_emoji(char: str) -> bool:
    return char > "\u00ff" and unicodedata.category(char) in ("So", "Sk", "Mn", "Cf")
