"""Makes the search index of the built site smaller, and lists pages before members of the API.

    python -m tools.docs.finish

Runs after `zensical build`, which does not support weights of pages. Signatures of the API are
removed from the index. Written pages come first in the index, and the script of the search lists
them first, unless the query has a capital letter, an underscore or a dot. `search.js` has the
index as a script, because pages that are opened as files cannot load JSON.
"""

from __future__ import annotations

import json
import re
import sys
from typing import Any, Final

from tools.docs.front_matter import ROOT, is_concept

SITE: Final = ROOT / "build" / "site"
SORT: Final = "l.items.sort(ht(...s))"
"""Statement that sorts the results in the script of Zensical's search, for the pinned version."""
_PAGES_FIRST: Final = """\
// Added by tools/docs/finish.py: pages come first unless the query looks like a name.
var query = ""
self.addEventListener("message", ({ data }) => {
  if (data.type === 2) query = String(data.data.input)
})
var isMember = item => item.id >= FIRST_MEMBER
var pagesFirst = (a, b) => /[A-Z_.]/.test(query) ? 0 : isMember(a) - isMember(b)
"""
_SIGNATURE: Final = re.compile(r"\A\s*<pre>.*?</pre>", re.DOTALL)
_LABELS: Final = re.compile(r"\s*<small>.*?</small>", re.DOTALL)


def shortened(index: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The index without signatures and labels, API entries last; and the first one's position.

    Args:
        index: of Zensical, each item with `location`, `title`, `text` and `path`.
    """
    pages, members = [], []
    for item in index["items"]:
        page, _, anchor = item["location"].partition("#")
        if is_concept(page):
            pages.append(item)
            continue
        package = page.removeprefix("reference/api/").removesuffix(".html")
        owner = anchor.removeprefix(f"{package}.").rpartition(".")[0]
        members.append(
            {
                **item,
                "title": _LABELS.sub("", item["title"]),
                "text": " ".join(_SIGNATURE.sub("", item["text"]).split()),
                "path": [*item["path"], *([owner] if owner else [])],
            }
        )
    return {**index, "items": [*pages, *members]}, len(pages)


def sorting(script: str, first_member: int) -> str:
    """The script of the search, changed to list pages before the items from `first_member` on.

    Raises:
        ValueError: the script does not contain `SORT` once: it is not from the pinned Zensical, or
            was changed before.
    """
    if script.count(SORT) != 1:
        raise ValueError(f"expected {SORT} once in the script of the search")
    before = _PAGES_FIRST.replace("FIRST_MEMBER", str(first_member))
    return before + script.replace(SORT, "l.items.sort(ht(pagesFirst,...s))")


def main() -> None:
    index, first_member = shortened(json.loads((SITE / "search.json").read_text("utf-8")))
    (worker,) = (SITE / "assets" / "javascripts" / "workers").glob("search.*.js")
    try:
        script = sorting(worker.read_text("utf-8"), first_member)
    except ValueError as error:
        sys.exit(f"{worker}: {error}. tools/docs/finish.py is for the Zensical of requirements.txt")
    text = json.dumps(index, ensure_ascii=False, separators=(",", ":"))
    (SITE / "search.json").write_text(text, "utf-8")
    (SITE / "search.js").write_text(f"var __index = {text}\n", "utf-8")
    worker.write_text(script, "utf-8")
    print(f"search: {len(index['items'])} entries, {len(text.encode()) / 1000:.0f} kB")


if __name__ == "__main__":
    main()
