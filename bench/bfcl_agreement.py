"""Does our reading of BFCL's matching rules agree with the package's own checker? On gold answers and corrupted ones.

    python bench/bfcl_agreement.py FOLDER      # where the wheel of bfcl-eval was unpacked

The package's checker is run with stubs for the modules that would pull in its dependencies.
"""

from __future__ import annotations

import copy
import random
import sys
import types
from pathlib import Path
from typing import Any

from callgate.evals._match import wrong
from callgate.evals.bfcl import CATEGORIES, NO_CALL, load
from callgate.types import ToolCall

RNG = random.Random(1)


def checker(folder: Path) -> tuple[Any, Any]:
    """The package's `ast_checker`, and its word for Python."""
    sys.path.insert(0, str(folder))
    config = types.ModuleType("bfcl_eval.constants.model_config")
    config.MODEL_CONFIG_MAPPING = {"m": types.SimpleNamespace(underscore_to_dot=False)}  # type: ignore[attr-defined]
    sys.modules[config.__name__] = config
    for name in ("java", "js"):
        module = types.ModuleType(f"bfcl_eval.eval_checker.ast_eval.type_convertor.{name}_type_converter")
        setattr(module, f"{name}_type_converter", None)
        sys.modules[module.__name__] = module
    from bfcl_eval.constants.enums import Language  # type: ignore[import-not-found]
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker  # type: ignore[import-not-found]

    return ast_checker, Language.PYTHON


def gold_arguments(accepted: dict[str, list[Any]]) -> dict[str, Any]:
    """One of the accepted answers."""
    out = {}
    for name, values in accepted.items():
        given = [v for v in values if v != ""]
        if not given or ("" in values and RNG.random() < 0.3):
            continue
        out[name] = _plain(RNG.choice(given))
    return out


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: RNG.choice([x for x in v if x != ""] or [""]) for k, v in value.items() if isinstance(v, list)}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return [_plain(v) for v in value]
    return copy.deepcopy(value)


def corrupted(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with one of them damaged."""
    out = copy.deepcopy(arguments)
    if not out:
        return {"x": 1}
    name = RNG.choice(list(out))
    value = out[name]
    kinds: list[Any] = [str(value), [value], None]
    if isinstance(value, bool):
        kinds += [not value, int(value)]
    elif isinstance(value, (int, float)):
        kinds += [value + 1, float(value), -value]
    elif isinstance(value, str):
        kinds += [value.upper(), value + "x", value.replace(" ", "-"), "", " " + value]
    elif isinstance(value, list):
        kinds += [value[:-1], value + value[:1], value[::-1], []]
    elif isinstance(value, dict):
        kinds += [{}, {**value, "q": 1}, dict(list(value.items())[1:])]
    if RNG.random() < 0.2:
        del out[name]
    elif RNG.random() < 0.1:
        out["zzz"] = 1
    else:
        out[name] = RNG.choice(kinds)
    return out


def main() -> None:
    if len(sys.argv) < 2:
        print("left out: python bench/bfcl_agreement.py FOLDER, where the wheel of bfcl-eval was unpacked")
        return
    folder = Path(sys.argv[1])
    check, python = checker(folder)
    same = total = right = 0
    for category in (c for c in CATEGORIES if c not in NO_CALL):
        for case in load(category, folder / "bfcl_eval" / "data"):
            for damage in range(4):
                calls = [(next(iter(g)), gold_arguments(next(iter(g.values())))) for g in case.gold]
                if damage:
                    at = RNG.randrange(len(calls))
                    calls[at] = (calls[at][0], corrupted(calls[at][1]))
                if damage == 3 and RNG.random() < 0.3:
                    RNG.shuffle(calls)
                given = [{name: copy.deepcopy(arguments)} for name, arguments in calls]
                theirs = check(list(case.functions), given, list(case.gold), python, category, "m")["valid"]
                ours = wrong([ToolCall("", n, a) for n, a in calls], case.gold, case.functions) is None
                total, same, right = total + 1, same + (ours == theirs), right + theirs
                if ours != theirs:
                    print(category, case.id, calls, f"ours {ours}, theirs {theirs}")
    print(f"{same} of {total} verdicts agree ({same / total:.2%}); {right} of the answers were right")


if __name__ == "__main__":
    main()
