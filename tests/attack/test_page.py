"""A game in a page tries to get more than the page gives it, in Chromium."""

import json
from pathlib import Path

from tests.helpers.chromium import Chromium
from tests.page.browser import IN_CHROMIUM, begin, served, text, write

pytestmark = IN_CHROMIUM

CONTEXTS = {
    *("Worker", "SharedWorker", "ServiceWorkerContainer", "BroadcastChannel", "MessageChannel"),
    *("fetch", "XMLHttpRequest", "WebSocket", "WebSocketStream", "WebTransport", "EventSource"),
    *("importScripts", "caches", "indexedDB", "navigator", "fonts", "FontFace", "cookieStore"),
    *("webkitRequestFileSystem", "webkitResolveLocalFileSystemURL", "Blob", "File", "URL"),
    *("Request", "Response", "RTCPeerConnection", "Notification", "location", "close"),
}
"""Names that a game must not reach, whatever a browser offers."""
GAME = """
import json
from dataclasses import dataclass
from enum import Enum

from entity_env import Game, Obs


class Step(Enum):
    LEFT = -1
    RIGHT = 1


@dataclass
class Runner:
    x: float


def post(name, text):
    import js
    from pyodide.ffi import to_js

    js.postMessage(to_js([name, text]))


def play(agent, *, seed: int):
    try:
        import js
    except ImportError:
        pass  # not in a page
    else:
        ATTACK
    for i in range(3):
        if agent.act(Obs(i).entities([Runner(i)]), Step) is None:
            return
    agent.game_over(Obs(5.0).entities([Runner(0)]))


runner = Game(play, entities=(Runner,), actions=(Step,), name="runner")
"""
CRAWL = """
function crawl(roots) {
  const names = [], seen = new Set(), reached = new Set(), left = [...roots];
  for (let level = self; level != Object.prototype; level = Object.getPrototypeOf(level))
    names.push(...Object.getOwnPropertyNames(level));
  while (left.length) {
    const each = left.pop();
    if (!["object", "function"].includes(typeof each) || each == null || seen.has(each)) continue;
    seen.add(each);
    try {
      if (ArrayBuffer.isView(each) || each instanceof pyodide.ffi.PyProxy) continue;
      if (typeof each == "function" && `${each}`.includes("[native code]")) reached.add(each.name);
      left.push(Object.getPrototypeOf(each));
      for (const key of Reflect.ownKeys(each)) {
        const {value, get, set} = Reflect.getOwnPropertyDescriptor(each, key);
        left.push(value, get, set);
      }
    } catch {}  // a proxy of Pyodide
  }
  return {names, reached: [...reached]};
}
post("told", JSON.stringify(crawl([self, pyodide, pyodide._module, pyodide._api])));
"""
HEAR = """
window.heard = [];
window.clicks = [];
HTMLAnchorElement.prototype.click = function () { clicks.push(this.download) };
startWorker = (old => () => {
  old();
  worker.addEventListener("message", ({data}) => heard.push(data));
})(startWorker);
"""
FRESH = """
new Promise(done => {
  const code = `
    const names = [];
    for (let level = self; level != Object.prototype; level = Object.getPrototypeOf(level))
      names.push(...Object.getOwnPropertyNames(level));
    postMessage(names);`;
  const fresh = new Worker(URL.createObjectURL(new Blob([code])));
  fresh.onmessage = ({data}) => done(data);
})
"""
UNASKED = [
    ["save", json.dumps(["evil.html", "PHNjcmlwdD4="])],
    ["watch", json.dumps("<script>parent.bad = 1</script>")],
    *([name, "null"] for name in ("ready", "answered", "__proto__", "toString", "constructor")),
    ["begun", "0"],
]


def with_attack(folder: Path, attack: str) -> Path:
    (folder / "runner.py").write_text(GAME.replace("ATTACK", attack))
    write(folder / "site", str(folder / "runner.py"))
    return folder / "site"


def test_a_game_reaches_only_what_is_allowed(tmp_path: Path) -> None:
    site = with_attack(tmp_path, "pass")
    worker = site / "worker.mjs"
    script = worker.read_text()
    assert script.count("lockUp();") == 1
    worker.write_text(script.replace("lockUp();", f"lockUp();{CRAWL}"))
    with served(site) as url, Chromium(f"{url}/", tmp_path / "profile") as page:
        page.value(HEAR)
        fresh = {*page.value(FRESH)}
        begin(page)
        told = json.loads(page.wait_for("heard.find(([name]) => name == 'told')?.[1]"))
        assert page.wait_for("frame.asked")
    names, reached = {*told["names"]}, {*told["reached"]}
    allowed = {*script.split("new Set(`")[1].split("`")[0].split()}
    # Constants that cannot be removed.
    assert names <= {*allowed, "PERSISTENT", "TEMPORARY"}
    assert len(CONTEXTS & fresh) > 20
    assert names & CONTEXTS == set()
    # Nor by another path, such as a property of Pyodide.
    assert {"postMessage", "MessageEvent", "get crypto"} <= reached
    assert reached & (fresh - names | CONTEXTS | {f"get {name}" for name in CONTEXTS}) == set()


def test_messages_that_the_page_did_not_ask_for_are_ignored(tmp_path: Path) -> None:
    posts = "; ".join(f"post({name!r}, {content!r})" for name, content in UNASKED)
    site = with_attack(tmp_path, posts)
    with served(site) as url, Chromium(f"{url}/", tmp_path / "profile") as page:
        page.value(HEAR)
        begin(page)
        page.wait_for("frame.asked")
        assert len(page.value("heard.filter(([name]) => name == 'begun')")) == 2
        assert page.value("clicks") == []
        assert not page.value("document.getElementById('film').hasAttribute('srcdoc')")
        assert not page.value("'bad' in window")
        assert text(page, "#failure") == ""
        assert page.problems == []


def test_a_saved_replay_is_never_a_file_of_another_kind(tmp_path: Path) -> None:
    site = with_attack(tmp_path, "pass")
    with served(site) as url, Chromium(f"{url}/", tmp_path / "profile") as page:
        page.value(HEAR)
        begin(page)
        page.value("purposes.push('file')")
        page.value(f"take('save', {UNASKED[0][1]})")
        page.value(f"take('save', {UNASKED[0][1]})")
        assert page.value("clicks") == ["game.replay"]
