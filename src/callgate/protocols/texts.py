"""The words of the generated prompts and of the reasons given with a retry, in English and Chinese.

Law: every text exists in every language, with the same fields in braces.
(tests/test_protocols_prompts.py::test_every_text_is_there_in_both_languages_with_the_same_fields)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias

from callgate.types import Message

Language: TypeAlias = Literal["en", "zh"]

RULES: dict[Language, str] = {
    "en": (
        "Call a tool when the answer needs fresh data, a look-up, an exact computation or an action. Never make up "
        "what a tool would return. Use only the tools listed, with exactly the arguments listed. When no tool fits, or "
        "all results are there, answer in plain words."
    ),
    "zh": (
        "当回答需要最新数据、查询、精确计算或执行操作时，必须调用工具。绝不要编造工具的返回结果。"
        "只使用列出的工具和列出的参数。没有合适的工具时，或结果已经齐全时，用普通文字回答。"
    ),
}

TEXTS: dict[str, dict[Language, str]] = {
    "object": {
        "en": (
            "You can use tools. Your whole reply is one JSON object in one of these forms and nothing else.\n"
            'To call a tool:\n{{"tool": "NAME", "args": {{…}}}}\n'
            'To answer the user:\n{{"answer": {answer}}}\n{several}'
        ),
        "zh": (
            "你可以使用工具。你的整个回复必须是下列形式之一的一个 JSON 对象，不要写任何其他内容。\n"
            '调用工具：\n{{"tool": "工具名", "args": {{…}}}}\n'
            '回答用户：\n{{"answer": {answer}}}\n{several}'
        ),
    },
    "json": {
        "en": (
            "You can use tools. To call one, your whole reply is one JSON object, with no text before or after it:\n"
            '{{"tool": "NAME", "args": {{…}}}}\n{several}'
            "To answer the user, write plain text without JSON.\n"
        ),
        "zh": (
            "你可以使用工具。调用工具时，整个回复必须是一个 JSON 对象，前后不要有任何文字：\n"
            '{{"tool": "工具名", "args": {{…}}}}\n{several}'
            "回答用户时，直接写普通文字，不要写 JSON。\n"
        ),
    },
    "marker": {
        "en": (
            "You can use tools. To call one, write exactly this, alone, without any text before or after it:\n"
            '<<<TOOL>>>{{"tool": "NAME", "args": {{…}}}}<<<END>>>\n{several}'
            "To answer the user, write plain text without these marks.\n"
        ),
        "zh": (
            "你可以使用工具。调用工具时，只写下面这一行，前后不要有任何文字：\n"
            '<<<TOOL>>>{{"tool": "工具名", "args": {{…}}}}<<<END>>>\n{several}'
            "回答用户时，直接写普通文字，不要写这些标记。\n"
        ),
    },
    "markup": {
        "en": (
            "You can use tools. To call one, write exactly in this form, without any text before or after it:\n"
            "{form}\n"
            "To answer the user, write plain text without this markup.\n"
        ),
        "zh": (
            "你可以使用工具。调用工具时，严格按照下面的形式书写，前后不要有任何文字：\n"
            "{form}\n"
            "回答用户时，直接写普通文字，不要写这种标记。\n"
        ),
    },
    "arguments": {
        "en": "Fill in the function's arguments for the request. Copy values from the request. Reply with JSON only.\n",
        "zh": "根据请求填写函数的参数。参数值从请求中原样复制。只回复 JSON。\n",
    },
    "choose": {
        "en": "Which tool does the request need? Reply with its name, or none if no tool fits.\n",
        "zh": "这个请求需要哪个工具？只回复工具名；没有合适的工具时回复 none。\n",
    },
    "none": {"en": "no tool fits; answer in words", "zh": "没有合适的工具，用文字回答"},
    "output": {
        "en": "Your final answer must be one JSON value that fits this schema, and nothing else:\n{schema}\n",
        "zh": "最终回答必须是符合以下模式的一个 JSON 值，不要写任何其他内容：\n{schema}\n",
    },
    "several_object": {
        "en": 'To call several tools at once:\n{{"calls": [{{"tool": "NAME", "args": {{…}}}}, …]}}\n',
        "zh": '同时调用多个工具：\n{{"calls": [{{"tool": "工具名", "args": {{…}}}}, …]}}\n',
    },
    "several": {
        "en": "For several calls write one after the other, each on its own line.\n",
        "zh": "需要多次调用时，一行写一个。\n",
    },
    "tools": {"en": "Tools:\n", "zh": "工具：\n"},
    "examples": {"en": "Examples:\n", "zh": "示例：\n"},
    "user": {"en": "User: ", "zh": "用户："},
    "you": {"en": "You: ", "zh": "你："},
    "result": {"en": "Result of {name}:\n{text}", "zh": "{name} 的结果：\n{text}"},
    "given": {
        "en": "Result of {name}({arguments}): {text}",
        "zh": "{name}({arguments}) 的结果：{text}",
    },
    "from_results": {
        "en": "Answer the user from these results, in one or two sentences.",
        "zh": "根据以上结果，用一两句话回答用户。",
    },
    "brief": {
        "en": "You are a friendly assistant. Answer in one or two short sentences.",
        "zh": "你是一个友好的助手。请用一两句话回答。",
    },
    "request": {"en": "Request: ", "zh": "请求："},
    "sure": {"en": "Shall I use {name} for this?", "zh": "要用 {name} 来处理吗？"},
    "which": {"en": "What should I use for {name}?", "zh": "请告诉我 {name} 的值。"},
    "invalid": {
        "en": "The arguments do not fit the tool's schema. Nothing was run. Call again with these corrected:",
        "zh": "参数不符合工具的模式，没有执行任何操作。请改正以下各点后重新调用：",
    },
    "malformed": {
        "en": "The arguments cannot be read as a JSON object. Nothing was run. Call again with valid JSON:",
        "zh": "参数无法读取为 JSON 对象，没有执行任何操作。请用正确的 JSON 重新调用：",
    },
    "incomplete": {
        "en": "The arguments were cut off. Nothing was run. Call again, with the whole JSON object.",
        "zh": "参数被截断，没有执行任何操作。请用完整的 JSON 对象重新调用。",
    },
    "arrived": {"en": " What arrived: {text}", "zh": "收到的内容：{text}"},
    "broken": {"en": "broken JSON", "zh": "JSON 有错误"},
    "unreadable": {"en": "the arguments of {name} are broken", "zh": "{name} 的参数有错误"},
    "no_json": {"en": "no JSON", "zh": "没有 JSON"},
    "nameless": {"en": "it has no tool that can be told", "zh": "看不出要调用哪个工具"},
    "no_call": {"en": "no call was complete", "zh": "没有一个调用是完整的"},
    "listed": {"en": "The tools are: {names}.", "zh": "可用的工具：{names}。"},
    "no_tools": {"en": "No tools are available.", "zh": "没有可用的工具。"},
    "perhaps": {"en": "Perhaps {names}? ", "zh": "是否指 {names}？"},
    "or": {"en": " or ", "zh": "、"},
    "kept": {
        "en": "The call is right. Send it again, beside those that are corrected.",
        "zh": "这个调用是正确的。请将它与改正后的调用一起重新发送。",
    },
    "not_said": {
        "en": "{names}: not in what was said; ask the user for it, do not make it up",
        "zh": "{names}：对话中没有提到；请询问用户，不要编造",
    },
    "must": {"en": "Your reply must call one of these tools.\n", "zh": "你这次的回复必须调用其中一个工具。\n"},
    "must_call": {"en": "Your reply must call {name}.\n", "zh": "你这次的回复必须调用 {name}。\n"},
    "required": {"en": "required", "zh": "必填"},
    "default": {"en": "default", "zh": "默认"},
}

WORKED: dict[Language, tuple[tuple[str, str], ...]] = {
    "en": (
        (
            "book_table: Book a table.\nrestaurant: Name.\npeople: Number of guests.\ndate: Day.\n"
            "Request: Get us a table at Luigi's for four on May 3rd.",
            '{"restaurant": "Luigi\'s", "people": 4, "date": "May 3rd"}',
        ),
        (
            "convert: Convert money.\namount: Amount of money.\nsource: Currency to convert from.\n"
            "target: Currency to convert to.\nRequest: How many euros are 150 US dollars?",
            '{"amount": 150, "source": "US dollars", "target": "euros"}',
        ),
        (
            "lookup_show: Details of a television show.\ntitle: Title of the show.\nseason: Number of the season.\n"
            "language: Language of the subtitles.\n"
            "Request: I want season 2 of 'The Long Road' with French subtitles.",
            '{"title": "The Long Road", "season": 2, "language": "French"}',
        ),
    ),
    "zh": (
        (
            "book_table: 预订餐桌\nrestaurant: 餐厅名称\npeople: 人数\ndate: 日期\n"
            "请求：请在小南国订一张四人桌，5月3日。",
            '{"restaurant": "小南国", "people": 4, "date": "5月3日"}',
        ),
        (
            "convert: 货币换算\namount: 金额\nsource: 原货币\ntarget: 目标货币\n请求：150美元等于多少欧元？",
            '{"amount": 150, "source": "美元", "target": "欧元"}',
        ),
    ),
}
"""Worked examples of filling in arguments: they stand before everything that changes, so they cost once."""

REASONS: dict[str, dict[Language, str]] = {
    "malformed": {
        "en": "Your call could not be read: {detail}. Send the call again, complete and correct.",
        "zh": "无法读取你的调用：{detail}。请重新发送完整且正确的调用。",
    },
    "truncated": {
        "en": "Your call was cut off before its end. Send it again, whole; keep the arguments short.",
        "zh": "你的调用在结束前被截断。请重新完整发送，参数尽量简短。",
    },
    "unknown_tool": {
        "en": "unknown tool {name}: no tool has this name. {detail}",
        "zh": "没有名为 {name} 的工具。{detail}",
    },
    "invalid_arguments": {
        "en": "The arguments of {name} are not valid: {detail}. Send the call again with these points corrected.",
        "zh": "{name} 的参数无效：{detail}。请改正后重新发送调用。",
    },
    "alone": {
        "en": "The call of {name} was not run, because it was not clearly a call. Send it alone, with no other text.",
        "zh": "{name} 的调用没有执行，因为它不明确是一次调用。请单独发送该调用，不要附加其他文字。",
    },
    "mentioned": {
        "en": "Your reply mentions a call inside other text, so nothing was run. If a tool should run, send the call "
        "alone. If not, give your answer again.",
        "zh": "你的回复只是在文字中提到了调用，因此没有执行。若要执行工具，请单独发送该调用；否则请重新给出回答。",
    },
    "repaired": {
        "en": "The call of {name} was not run, because its JSON was broken. Send the call again as correct JSON.",
        "zh": "{name} 的调用没有执行，因为其 JSON 有错误。请以正确的 JSON 重新发送。",
    },
    "empty": {
        "en": "Your reply was empty. Answer the user, or call a tool.",
        "zh": "你的回复为空。请回答用户或调用工具。",
    },
    "ignored": {
        "en": "Your reply was not in the form that was asked for: {detail}. Reply in that form only.",
        "zh": "你的回复不符合要求的形式：{detail}。请只按该形式回复。",
    },
    "announced": {
        "en": "You wrote that you will use {name}, but your reply holds no call, so nothing was run. If the tool "
        "should run, send the call now. If not, give your answer without announcing a call.",
        "zh": "你写到要使用 {name}，但回复中没有调用，因此没有执行任何操作。若要执行，请现在发送调用；"
        "否则请直接给出回答，不要预告调用。",
    },
    "forced": {
        "en": "A call of {name} is required here, and this is none. Send the call.",
        "zh": "这里必须调用 {name}，而这不是该调用。请发送调用。",
    },
    "checked": {
        "en": "This answer is not accepted: {detail}. Send another answer.",
        "zh": "此回答未被接受：{detail}。请重新回答。",
    },
    "output": {
        "en": "Your final answer does not fit the schema: {detail}. Send the whole answer again.",
        "zh": "你的最终回答不符合模式：{detail}。请重新发送完整的回答。",
    },
}


def language_of(text: str) -> Language:
    """The language to ask in: Chinese if Han characters are a fifth of the letters or more, else English."""
    if text.isascii():
        return "en"
    han = sum("\u4e00" <= c <= "\u9fff" for c in text)
    letters = sum(c.isalpha() for c in text)
    return "zh" if han and han * 5 >= letters else "en"


def reason(kind: str, *, name: str = "", detail: str = "", language: Language = "en") -> str:
    """The precise reason that goes back to the model with a retry. Kinds: the keys of `REASONS`."""
    return REASONS[kind][language].format(name=name, detail=detail.rstrip(".。 "))


def spoken(messages: Iterable[Message]) -> Language:
    """The language of a conversation: that of its first user message, so that it never changes within one."""
    return language_of(next((m.text for m in messages if m.role == "user"), ""))


def explain(messages: Iterable[Message], kind: str, *, name: str = "", detail: str = "") -> str:
    """`reason` in the language of the conversation's first user message."""
    return reason(kind, name=name, detail=detail, language=spoken(messages))
