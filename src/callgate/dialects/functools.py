"""`functools[…]`: FireFunction and Phi-4-mini under vLLM's prompt."""

from __future__ import annotations

from callgate.dialects._spec import Calls, Dialect, JsonItems

DIALECTS = (
    Dialect(
        "functools",
        "FireFunction v2, Phi-4-mini (vLLM prompt)",
        calls=(Calls(JsonItems(in_list=True), open=("functools[",)),),
        drop=("<|eot_id|>", "<|end|>", "<|endoftext|>"),
    ),
)
