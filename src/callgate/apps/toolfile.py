"""Tools from a user's file: `FILE.py`, or `FILE.py:name` for one function, tool, toolbox or list in it; where they are
only to be described, also a JSON list of them.

Law: what is wrong with the file is one line that names the file and says what to do.
    (tests/test_cli.py::test_bad_input_is_one_clear_line)
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from callgate.errors import CallgateError, ConfigError, ToolError
from callgate.tools import Tool, Toolbox, as_toolbox

if TYPE_CHECKING:
    from callgate.types import ToolSpec


def load(places: Iterable[str], option: str = "--tools ") -> Toolbox:
    """The tools of all places together; "demo" means those of callgate's demo.

    `option` stands before the file's name in errors; "" for an argument.
    """
    tools: list[Any] = []
    for place in places:
        tools.extend(_demo() if place == "demo" else _from(place, option))
    return as_toolbox(tools)


def described(place: str) -> tuple[ToolSpec, ...]:
    """The descriptions of the tools of a Python file, or of a JSON file: a list, {"tools": […]} or one tool."""
    from callgate.reply import tool_specs

    if place == "demo" or split_place(place)[0].suffix == ".py":
        return load([place]).specs
    text = read_text(place, "--tools")
    try:
        data = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"--tools: {place}: not JSON: {error}") from error
    tools = data.get("tools", [data]) if isinstance(data, dict) else data
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise ConfigError(f'--tools: {place}: expected a list of tools, or {{"tools": […]}}')
    return tool_specs(tools)


def read_text(path: str, option: str) -> str:
    """The text of the file that this option names."""
    try:
        return Path(path).read_text("utf-8")
    except OSError as error:
        raise ConfigError(f"{option}: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{option}: {path}: not UTF-8 text (byte {error.start})") from error


def _demo() -> tuple[Tool, ...]:
    from callgate.apps.demo import TOOLS

    return TOOLS


def _from(place: str, option: str) -> Iterable[Tool]:
    file, name = split_place(place)
    module = executed(file, f"{option}{file}")
    label = f"{option}{place}"
    if name:
        if not hasattr(module, name):
            raise ConfigError(f"{label}: {file} has no {name!r}")
        return _as_tools(getattr(module, name), label)
    found = [value for value in vars(module).values() if isinstance(value, (Tool, Toolbox))]
    if not found:
        raise ConfigError(
            f"{label}: no tools in it; put @tool (from callgate import tool) before your functions, "
            f"or name one of them: {option}{file}:FUNCTION"
        )
    return _as_tools(found, label)


def split_place(place: str) -> tuple[Path, str]:
    """`FILE.py:NAME` as the file and the name; "" where no name is given."""
    file, colon, name = place.rpartition(":")
    if colon and name.isidentifier() and not Path(place).exists():
        return Path(file), name
    return Path(place), ""


def _as_tools(value: Any, label: str) -> Iterable[Tool]:
    several = isinstance(value, (list, tuple))
    try:
        return list(as_toolbox(value if several else [value]))
    except ToolError as error:
        raise ToolError(f"{label}: {error}") from error


def executed(file: Path, label: str) -> ModuleType:
    """The user's file as a module. Raises ConfigError for whatever goes wrong in it; `label` begins its text."""
    if not file.is_file():
        raise ConfigError(f"{label}: no such file; give the path of a Python file with functions under @tool")
    spec = spec_from_file_location(f"callgate_tools_{file.stem}", file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{label}: not a Python file; its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module  # annotations are looked up there
    sys.path.insert(0, str(file.resolve().parent))  # so that it can import its neighbours, as `python FILE.py` can
    try:
        spec.loader.exec_module(module)
    except CallgateError as error:
        raise ConfigError(f"{label}: {error}") from error
    except SyntaxError as error:
        raise ConfigError(f"{label}: line {error.lineno}: {error.msg}") from error
    except Exception as error:
        raise ConfigError(f"{label}: {_where(error, file)}{type(error).__name__}: {error}") from error
    return module


def _where(error: BaseException, file: Path) -> str:
    lines = []
    trace = error.__traceback__
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename).resolve() == file.resolve():
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    return f"line {lines[-1]}: " if lines else ""
