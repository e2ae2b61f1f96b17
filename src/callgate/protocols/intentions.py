"""Recognises an answer that only talks about a call: "I will use get_weather for Paris", and then nothing.

Law: what the model says it could do, did, would do or will not do is no announcement, nor is what it makes depend on
the user; an announcement names the tool and says in the first person that the call comes now.
(tests/test_protocols_intentions.py::test_only_what_will_be_done_is_an_announcement)

Theory of operation. The text is cut into sentences. (1) What stands in a fence, a quoted line or quotation marks is
somebody else's word. (2) A sentence that names a tool, and says before the name that the model will call it, is an
announcement, (3) unless the sentence denies it, asks, or makes it depend on something. (4) A text that ends in a
question, or asks the user for something, waits for the user: then nothing is announced.
"""

from __future__ import annotations

import re
from collections.abc import Collection

MAX_TEXT = 8_000
"""Characters of an answer that are looked at: a longer one is a document, in which tools are described."""

_QUOTED = re.compile(
    r"```.*?(?:```|\Z)|^\s*[>|].*$|“[^“”\n]*”|「[^「」\n]*」|(?<!\w)\"[^\"\n]*\"", re.DOTALL | re.MULTILINE
)
_SENTENCE = re.compile(r"[^.!?。！？\n]*(?:\.(?=\w)[^.!?。！？\n]*)*[.!?。！？\n]?")

_VERB = r"(?:call|use|invoke|run|execute|query|consult|try|apply|trigger|employ)"
_WILL = (
    r"(?:\b(?:I|we)(?:['’]ll| will| shall|['’]m going to| am going to|['’]re going to| are going to|['’]m about to"
    r"| am about to| need to| have to| must|['’]m| am|['’]re| are| now| first)"
    r"|\blet me|\blet['’]?s|\blet us"
    r"|^\W*(?:(?:now|next|first|okay|ok|sure|alright|then)\W+)*(?=(?:calling|using|invoking|running|executing|querying)\b))"
)
_NOW_EN = re.compile(
    rf"{_WILL}[^.!?]{{0,60}}?\b(?:{_VERB}(?:ing)?|calling|using|invoking|running|executing|querying)\b[^.!?]{{0,60}}?$"
    rf"|{_WILL}[^.!?]{{0,80}}?\b(?:with|via|through)\b[^.!?]{{0,30}}?$",
    re.IGNORECASE,
)
"""What stands before the name of the tool (rule 2). `$` is where the name begins."""
_NOT_EN = re.compile(
    r"\b(?:not|n['’]t|never|no longer|without|cannot|unable|instead of|could|would|might|may|can|if|unless|once|when"
    r"|whenever|until|after you|as soon as|before|in case|should|explain|describe|show you|tell you|example|used"
    r"|called|invoked|ran|already|previously|earlier|so far|have to (?:stop|avoid)|avoid|skip)\b",
    re.IGNORECASE,
)
_WAITS_EN = re.compile(
    r"\b(?:please (?:tell|give|provide|specify|confirm|let me know|share|choose|enter)|let me know"
    r"|(?:could|can|would|will) you|tell me|do you want|would you like)\b",
    re.IGNORECASE,
)

_NOW_ZH = re.compile(
    r"(?:我|我们|让我|接下来|下面|现在|马上|首先|这就|正在|先)"
    r"[^。！？]{0,20}?(?:调用|使用|运行|执行|查询|用|通过)[^。！？]{0,20}?$"
)
_CALLING_ZH = re.compile(
    r"(?:将|会|要|准备|打算|需要|必须|来|去|马上|立即|现在|正在|先|这就|即将|接下来|下面|首先|应该|再|让我)"
)
"""A word that puts the call into the near future; without one, 我用过… is a report and 我用… a habit."""
_NOT_ZH = re.compile(
    r"不|没|無|无法|可以|能够|能用|可能|也许|已经|已用|过了|用过|调用了|使用了|查询了|执行了|曾|刚才|刚刚|之前|如果|若|要是|假如|除非|一旦|等你|等您|当"
    r"|之后再|是否|例如|比如|示例|解释|说明|介绍|告诉你|想要|请先|的话"
)
_WAITS_ZH = re.compile(
    r"请(?:告诉|提供|说明|确认|给|选择|输入|补充|问|您|你)|需要(?:你|您)|(?:你|您)(?:想|要|希望|需要|能)|吗|呢[?？]|哪个|哪里|哪儿|什么"
)


def announced(text: str, names: Collection[str], called: Collection[str] = ()) -> str | None:
    """The tool of which the text says that it will be called now; None: of none, or only of tools already `called`."""
    waiting = [name for name in names if name not in called]
    if not waiting or not text.strip() or len(text) > MAX_TEXT:
        return None
    own = _QUOTED.sub(" ", text)  # rule 1
    sentences = [found.strip() for found in _SENTENCE.findall(own) if found.strip()]
    if not sentences or sentences[-1].endswith(("?", "？")) or _WAITS_EN.search(own) or _WAITS_ZH.search(own):
        return None  # rule 4
    return next((name for sentence in sentences if (name := _in(sentence, waiting)) is not None), None)


def _in(sentence: str, names: Collection[str]) -> str | None:
    """Rules 2 and 3 for one sentence."""
    if sentence.endswith(("?", "？")):
        return None
    for name in sorted(names, key=len, reverse=True):
        for match in re.finditer(named(name), sentence):
            before = sentence[: match.start()].rstrip("`*'\"“‘《 \t")
            shown = sentence[: match.start()] + " " + sentence[match.end() :]
            if _means_tool(match, sentence) and _promises(before, shown):
                return name
    return None


def named(name: str) -> str:
    """A pattern for a tool's name in prose of any language: Chinese puts no blanks around it."""
    return rf"(?<![A-Za-z0-9_.]){re.escape(name)}(?![A-Za-z0-9_]|\.[A-Za-z0-9_])"


_WORD = re.compile(r"[a-z]+")
_TOOL = re.compile(r"[`*\"”']*\s*(?:tool\b|function\b|API\b|工具|函数|接口|\()", re.IGNORECASE)


def _means_tool(match: re.Match[str], sentence: str) -> bool:
    """Whether a name that is also a plain word (`add`, `search`) stands for the tool: it is marked up or called one."""
    if _WORD.fullmatch(match[0]) is None:
        return True
    return sentence[: match.start()].endswith(("`", "**")) or _TOOL.match(sentence, match.end()) is not None


def _promises(before: str, sentence: str) -> bool:
    """Whether the words before a tool's name say that it comes now, and no word of the sentence takes it back."""
    if _NOW_EN.search(before):
        return _NOT_EN.search(sentence) is None
    return bool(_NOW_ZH.search(before) and _CALLING_ZH.search(before)) and _NOT_ZH.search(sentence) is None
