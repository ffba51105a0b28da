"""How long does `import entity_env` take, and what does it pull in?

Median over fresh interpreters of the time of the import alone; fails when torch, numba or gymnasium
come along.
"""

from __future__ import annotations

import subprocess
import sys

from benchmarks.common import interleaved, report, rounds_and_json

_UNWANTED = ("torch", "numba", "gymnasium")

_CODE = """
import sys
from time import perf_counter
begin = perf_counter()
import {module}
print((perf_counter() - begin) * 1e3)
print(*(name for name in {unwanted!r} if name in sys.modules))
"""


def import_ms(module: str) -> float:
    """Milliseconds that a fresh interpreter takes to import a module.

    Raises:
        SystemExit: the import pulled in a package that it must not.
    """
    code = _CODE.format(module=module, unwanted=_UNWANTED)
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    elapsed, loaded = result.stdout.split("\n")[:2]
    if loaded:
        raise SystemExit(f"import {module} loads {loaded}")
    return float(elapsed)


def main() -> None:
    """Measures and reports."""
    rounds, as_json = rounds_and_json(__doc__ or "")
    times = interleaved(
        {
            "import_ms": lambda: import_ms("entity_env"),
            "import_numpy_ms": lambda: import_ms("numpy"),
        },
        max(rounds, 11),
    )
    report("Importing", times, ["numpy", "greenlet", "entity-env"], as_json)


if __name__ == "__main__":
    main()
