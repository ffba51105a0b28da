"""Writes clients/godot4, the client for Godot 4, from the scripts for Godot 3 in clients/godot.

The scripts differ in names of the engine, and in how a function waits. Scenes are not converted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1] / "clients"
FILES: Final = ("addons/entity_env/*.gd", "addons/entity_env/plugin.cfg", "games/*.gd")

_TEXTS: Final = {
    # agent.gd: `await` takes a signal
    "_is_awaited = true\n\treturn self\n": "_is_awaited = true\n\treturn completed\n",
    'use yield(agent.act(...), \\"completed\\")': "use await agent.act(...)",
    '`yield(agent.get_answer(), "completed")`': "`await agent.get_answer()`",
    # entity_env.gd
    "games of Godot 3 with": "games of Godot 4 with",
    "is a FuncRef": "is a Callable",
    "a FuncRef that gets": "a Callable that gets",
    'funcref(self, \\"%s\\")" % [key, key]': '%s" % [key, key]',
    " is FuncRef ": " is Callable ",
    "process_priority = ": "process_physics_priority = ",
    "pause_mode = Node.PAUSE_MODE_PROCESS": "process_mode = Node.PROCESS_MODE_ALWAYS",
    'address.join(":")': '":".join(address)',
    'items.join(",")': '",".join(items)',
    "STATUS_CONNECTING:\n\t\t\tOS.delay_msec(1)\n": (
        "STATUS_CONNECTING:\n\t\t\tOS.delay_msec(1)\n\t\t\t_connection.poll()\n"
    ),
    "# `to_json` would": "# `JSON.stringify` would",
    "`JSON.parse` would crash with": "the parser refuses",
    "\tvar parsed = JSON.parse(text)\n\tvar data = parsed.result\n\tif parsed.error != OK or": (
        "\tvar parsed = JSON.new()\n\tvar error = parsed.parse(text)\n\tvar data = parsed.data\n"
        "\tif error != OK or"
    ),
    "\tvar state = _game.play.call_func(first, episode_seed, _settings)\n"
    "\tif state is GDScriptFunctionState:\n"
    '\t\tstate.connect("completed", run, "returned")\n'
    "\telse:\n"
    "\t\trun.returned()\n": (
        "\tvar result = await _game.play.call(first, episode_seed, _settings)\n"
        "\trun.returned(result)\n"
    ),
    # frames.gd
    "\t# `var2bytes` writes the type and the length first\n": "",
    "PoolByteArray() if numbers.size() == 0 else var2bytes(numbers).subarray(8, -1)": (
        "numbers.to_byte_array()"
    ),
    # plugin.gd
    "\ntool\n": "\n@tool\n",
}
_PATTERNS: Final = {
    r"yield\((.*), \"completed\"\)": r"await \1",
    r"yield\((self|get_tree\(\)), \"(\w+)\"\)": r"await \1.\2",
    r"funcref\(self, \"(\w+)\"\)": r"\1",
    r"\.call_func\(": ".call(",
    r"\bReference\b": "RefCounted",
    r"\bPoolByteArray": "PackedByteArray",
    r"\bPoolIntArray": "PackedInt32Array",
    r"\bPoolRealArray": "PackedFloat32Array",
    r"\bPoolStringArray": "PackedStringArray",
    r"\bTYPE_REAL\b": "TYPE_FLOAT",
    r"\.empty\(\)": ".is_empty()",
    r"\.to_utf8\(\)": ".to_utf8_buffer()",
    r"\bOS\.get_ticks_msec\b": "Time.get_ticks_msec",
}


def converted(text: str) -> str:
    """A script for Godot 4."""
    for old, new in _TEXTS.items():
        text = text.replace(old, new)
    for pattern, replacement in _PATTERNS.items():
        text = re.sub(pattern, replacement, text)
    return text


def files() -> dict[str, str]:
    """Contents of the converted files, by their names in clients/godot4."""
    source = ROOT / "godot"
    return {
        path.relative_to(source).as_posix(): converted(path.read_text())
        for pattern in FILES
        for path in sorted(source.glob(pattern))
    }


if __name__ == "__main__":
    for name, text in files().items():
        target = ROOT / "godot4" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
