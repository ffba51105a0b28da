"""Runs a game of Godot 4 in headless Chromium, with the engine's build for the web.

    python godot4.py ENGINE PROJECT SCRIPT [--odd=WORD]

ENGINE is the folder with its `index.js` and `index.wasm`. The build has no TCP: this program
connects to the host, and a page exchanges bytes with it by HTTP. Only the class of the connection
is replaced in the scripts of the client, and games are nodes.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import sys
import tempfile
import threading
import zipfile
from functools import partial
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[4]
sys.path.insert(0, str(ROOT))

from entity_env.cli.commands.page import PageFiles  # noqa: E402
from tests.helpers.chromium import Chromium  # noqa: E402

PROJECT: Final = """
config_version=5
[application]
run/main_scene="res://main.tscn"
run/disable_stdout=true
[autoload]
Environment="*res://environment.gd"
[rendering]
renderer/rendering_method="gl_compatibility"
"""
SCENE: Final = """
[gd_scene load_steps=2 format=3]
[ext_resource type="Script" path="res://main.gd" id="1"]
[node name="Main" type="Node"]
script = ExtResource("1")
"""
ENVIRONMENT: Final = """
extends Node

func _init():
	OS.set_environment("ENTITY_ENV_ADDRESS", "{address}")
	OS.set_environment("ENTITY_ENV_TOKEN", "{token}")
"""
CONNECTION: Final = """
extends RefCounted

var received = PackedByteArray()
var sent = PackedByteArray()

func connect_to_host(_host, _port):
	return OK

func get_status():
	return StreamPeerTCP.STATUS_CONNECTED

func set_no_delay(_is_on):
	pass

func put_data(bytes):
	sent.append_array(bytes)
	return OK

func exchange(has_ended):
	var text = Marshalls.raw_to_base64(sent) if not sent.is_empty() else ""
	sent.clear()
	return JavaScriptBridge.eval("exchange('%s', %s)" % [text, has_ended])

func get_data(count):
	while received.size() < count:
		var text = exchange(false)
		if not text:
			return [ERR_FILE_EOF, received]
		received.append_array(Marshalls.base64_to_raw(text))
	var found = received.slice(0, count)
	received = received.slice(count)
	return [OK, found]

func disconnect_from_host():
	if not sent.is_empty():
		exchange(true)
"""
PAGE: Final = """<!doctype html><meta charset=utf-8><title>Godot 4</title>
<canvas id=canvas></canvas>
<script src=index.js></script><script>
function post(path, text) {
  const request = new XMLHttpRequest();
  request.open("POST", path, false);
  request.send(text);
  return request.responseText;
}
const exchange = (text, hasEnded) => post(hasEnded ? "/end" : "/exchange", text);
new Engine({
  args: ["--headless", "--audio-driver", "Dummy", ...WORDS],
  executable: "index", mainPack: "game.zip", canvasResizePolicy: 0, fileSizes: {},
  canvas: document.getElementById("canvas"),
  onPrint: () => {}, onPrintError: (...words) => post("/error", words.join(" ")),
  onExit: code => post("/exit", String(code)),
}).startGame().catch(error => {
  if (String(error) === "RuntimeError: null function") return; // without a display, after the start
  post("/error", String(error));
  post("/exit", "70");
});
</script>
"""


def main() -> int:
    engine, project, script = (Path(word) for word in sys.argv[1:4])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file in ("index.js", "index.wasm", "index.audio.worklet.js"):
            (folder / file).symlink_to(engine / file)
        (folder / "index.html").write_text(PAGE.replace("WORDS", json.dumps(sys.argv[4:])))
        write_game(folder / "game.zip", project, script)
        with connected() as connection, ThreadingHTTPServer(("127.0.0.1", 0), Files) as server:
            relay = Relay(connection)
            server.RequestHandlerClass = partial(Files, relay, directory=str(folder))
            threading.Thread(target=server.serve_forever, daemon=True).start()
            url = f"http://127.0.0.1:{server.server_port}/index.html"
            with Chromium(url, folder / "profile"):
                relay.has_ended.wait()
            server.shutdown()
    return relay.code


def connected() -> socket.socket:
    """The connection to the host."""
    _, host, port = os.environ["ENTITY_ENV_ADDRESS"].split(":")
    return socket.create_connection((host, int(port)))


def write_game(path: Path, project: Path, script: Path) -> None:
    """Packs the scripts of a project, and a scene that plays one of its games."""
    environment = ENVIRONMENT.replace("{token}", os.environ.get("ENTITY_ENV_TOKEN", ""))
    with zipfile.ZipFile(path, "w") as pack:
        pack.writestr("project.godot", PROJECT)
        pack.writestr(".godot/global_script_class_cache.cfg", "list=[]\n")
        pack.writestr("main.tscn", SCENE)
        pack.writestr("main.gd", as_node(script.read_text()))
        pack.writestr("environment.gd", environment.replace("{address}", "tcp:127.0.0.1:1"))
        pack.writestr("connection.gd", CONNECTION)
        for file in sorted((project / "addons").rglob("*.gd")):
            text = file.read_text()
            text = text.replace("StreamPeerTCP.new()", 'preload("res://connection.gd").new()')
            pack.writestr(file.relative_to(project).as_posix(), text)


def as_node(game: str) -> str:
    """A script for the main loop, which this build cannot run, as one for a node."""
    game = game.replace("extends SceneTree", "extends Node").replace("_initialize()", "_ready()")
    game = game.replace("await self.physics_frame", "await get_tree().physics_frame")
    return game.replace("root.add_child", "add_child")


class Relay:
    """What pages exchange with the host."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.has_ended = threading.Event()
        self.code = 70

    def answer(self, path: str, body: str) -> str:
        if path == "/exit":
            self.code = int(body)
            self.has_ended.set()
        elif path == "/error":
            sys.stderr.write(body + "\n")
            sys.stderr.flush()
        else:
            self.connection.sendall(base64.b64decode(body))
            if path == "/exchange":
                return base64.b64encode(self.connection.recv(2**20)).decode()
        return ""


class Files(PageFiles):
    """The page, and its messages."""

    def __init__(self, relay: Relay, *args: object, **options: object) -> None:
        self.relay = relay
        super().__init__(*args, **options)  # type: ignore[arg-type]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        found = self.relay.answer(self.path, body).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(found)))
        self.end_headers()
        self.wfile.write(found)


if __name__ == "__main__":
    sys.exit(main())
