"""Minified scripts and pages mean what their sources mean."""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest

from entity_env.views.page import minified, minified_script, player_sources

NODE = shutil.which("node")
SOURCE = r"""
// A comment with "quotes, ' and `.
const values = [] /* one more // of them */;
function add(...more) {
  values.push(...more);
  return values
}
let text = "// no comment" + '/* nor this */', quote = "\"//" + '\'';
add(text, quote, `a ${ `b ${ 1 + 1 } // c` } /* d */ \` ${ {e: {f: "}"}}.e.f }  two  spaces`);
add(/[/"'`]\/ +/.test("\"/  "), /a b/.source, "a  b".replace(/ +/g, " "));
const half = (1 + 3) / 2 / 1, index = [6, 3][0] / 2;
add(half, index)
let i = 1, j = 2
i
++j
add(i + +j, i - -j, i+ ++j, i - --j, typeof i, i in [0, 1], void 0 === undefined)
const inner = {
  if: 1, "of  it": 2,
  get three() { return 3 },
}
add(inner.if, inner["of  it"], inner.three, inner?.four ?? 4)
const f = function () { return 5 }
;[6].forEach(x => add(x))
add(f())
label: for (const each of [7, 8]) {
  if (each == 8) break label
  else add(each)
}
class Point { #x = 9; static y = 10
  get x() { return this.#x } }
add(new Point().x, Point.y)
const g = () => {
  return
  11
}
add(g() === undefined)
do i++; while (i < 5)
add(i, .5.toFixed(1), 1e-3, 0xf)
"""


def run(script: str) -> object:
    program = f"{script}\n;console.log(JSON.stringify(values))"
    done = subprocess.run([str(NODE), "-e", program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.skipif(NODE is None, reason="node is not installed")
def test_a_minified_script_does_what_its_source_does() -> None:
    short = minified_script(SOURCE)
    assert run(short) == run(SOURCE)
    assert "comment with" not in short
    assert len(short) < len(SOURCE)
    assert minified_script(short) == short


def test_declarations_are_joined() -> None:
    script = "const a = 1;\nlet b = 2;\nconst c = () => { f(); };\ng();\nlet d = 1\nh();\nlet e;"
    assert minified_script(script) == "let a=1,b=2,c=()=>{f()};g();let d=1\nh();let e;"


def test_a_script_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be read at '} b"):
        minified_script("f(`a ${1} b)")


def test_styles_and_markup_keep_what_has_meaning() -> None:
    html = """<!doctype html>
    <!-- a comment -->
    <style>
    /* another */
    a :hover, a:not( .b ) > i { color : red; margin: 0 auto; content: "x" }
    @media (max-width: 700px) { #c { width: calc(100% - 12px); } }
    </style>
    <p>one <b>two</b> <i>three</i>
    four</p>
    <pre id="d">  </pre>
    <script>
    let a = 1;  // why
    </script>
    """
    assert minified(html) == (
        '<!doctype html><style>a :hover,a:not( .b ) > i{color : red;margin:0 auto;content:"x"}'
        "@media (max-width: 700px){#c{width:calc(100% - 12px)}}</style>"
        '<p>one <b>two</b> <i>three</i> four</p><pre id="d"> </pre><script>let a=1;</script>'
    )


def test_the_sources_of_the_player_are_complete_and_small() -> None:
    text = player_sources()
    assert ".js@" not in text
    assert ".css@" not in text
    assert "//" not in text.replace("http://", "")
    assert "\n\n" not in text
