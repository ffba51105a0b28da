"""Serves a game in Python as a program of the protocol: `python -m tests.vec.external.serve PLACE`.

Written for tests: slow, and complete.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from entity_env.agents.channels.game_runner import GameRunner, TrainAgent
from entity_env.authoring.action_type import SelectEntity
from entity_env.authoring.game import Game
from entity_env.authoring.identity import all_settings
from entity_env.authoring.obs import Obs, actions_at_truncation, answers_to
from entity_env.batching.frame import Frame, LocalMemory
from entity_env.batching.obs_batcher import ObsBatcher
from entity_env.core.episode import Episode
from entity_env.core.seeding import SeedsFrom
from entity_env.core.spaces import ContinuousActionSpace, SelectEntityActionSpace, spaces_to_json

HELLO, START, READY, RESET, ACT, STEP, ERROR, CLOSE = range(1, 9)


def padded(data: bytes, fill: bytes = b"\0") -> bytes:
    return data + fill * (-len(data) % 8)


class Connection:
    """Messages over the connection that the environment names."""

    def __init__(self) -> None:
        address = os.environ["ENTITY_ENV_ADDRESS"]
        kind, _, place = address.partition(":")
        if kind == "stdio":
            self.socket = socket.socket(fileno=os.dup(0))
            os.dup2(2, 1)
        elif kind == "unix":
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.connect(place)
        else:
            host, _, port = place.rpartition(":")
            self.socket = socket.create_connection((host, int(port)))

    def send(self, kind: int, payload: bytes) -> None:
        self.socket.sendall(struct.pack("<4sIQ", b"ENE1", kind, len(payload)) + payload)

    def send_json(self, kind: int, data: object) -> None:
        self.send(kind, padded(json.dumps(data).encode(), b" "))

    def receive(self) -> tuple[int, bytes]:
        magic, kind, size = struct.unpack("<4sIQ", self._read(16))
        if magic != b"ENE1":
            raise SystemExit(f"bad message: {magic!r}")
        return kind, self._read(size)

    def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise SystemExit(0)
            data += part
        return data


class Copy:
    """One copy of the game."""

    def __init__(self, server: Server, env_id: int) -> None:
        self.server, self.env_id = server, env_id
        self.runner = GameRunner(server.game, env_id=env_id, on_end=self.end, holds_at_end=True)
        self.flags = 0
        self.is_new = False
        self.is_playing = False

    def start(self, seed: int) -> None:
        self.flags, self.is_new = 1, True
        self.run(lambda: self.runner.restart(SeedsFrom(seed)))

    def run(self, advance: Callable[[], None]) -> bool:
        """Runs until agents wait or the episode is over; returns whether agents wait."""
        self.is_playing = True
        try:
            advance()
        except Exception as error:
            self.fail(error)
            return False
        self.is_playing = not self.runner.is_over
        return self.is_playing

    def fail(self, error: Exception) -> None:
        for agent in self.runner.agents:
            row = self.server.row(self.env_id, agent.agent_id)
            self.server.ends.append((row, 4 + 8 * self.is_new, 0.0, None, (), {}))
            text = f"{type(error).__name__}: {error}"
            self.server.failures.append(
                {"row": row, "message": text, "traceback": traceback.format_exc()}
            )
        self.is_playing = False
        self.runner = GameRunner(
            self.server.game, env_id=self.env_id, on_end=self.end, holds_at_end=True
        )

    def end(self, agent: TrainAgent, obs: Obs, episode: Episode) -> None:
        asked = agent.kinds if episode.length else ()  # not those of an earlier episode
        kinds = actions_at_truncation(obs, asked) if episode.truncated else ()
        row = self.server.row(self.env_id, agent.agent_id)
        flags = (2 if episode.truncated else 1) + 8 * self.is_new
        end = (row, flags, float(obs.score), obs.frozen(), kinds, dict(obs.metrics or {}))
        self.server.ends.append(end)


class Server:
    """All copies of the game."""

    def __init__(self, game: Game, metrics: list[str]) -> None:
        self.game, self.metrics = game, metrics
        self.connection = Connection()
        self.ends: list[Any] = []
        self.failures: list[Any] = []

    def row(self, env_id: int, agent_id: int) -> int:
        return self.row_of[env_id] * self.game.num_agents + agent_id

    def serve(self) -> None:
        known = {k: v for k, v in all_settings(self.game).items() if v is not None}
        token = os.environ.get("ENTITY_ENV_TOKEN", "")
        hello = {"protocol": 1, "name": self.game.name, "token": token, "settings": known}
        self.connection.send_json(HELLO, hello)
        kind, payload = self.connection.receive()
        start = json.loads(payload)
        given = {k: v for k, v in start["settings"].items() if k in known and known[k] != v}
        self.game = self.game.with_settings(**given)
        spaces: Any = spaces_to_json(self.game.obs_space(), self.game.action_space())
        kinds = {each.name: each for each in self.game.schema.kinds}
        for item in spaces["actions"]:
            chosen = kinds[item["name"]]
            if isinstance(chosen, SelectEntity):
                item["selects"] = chosen.actee.__name__
        ready = {
            "num_agents": self.game.num_agents,
            "spaces": spaces,
            "metrics": self.metrics,
            "max_entities": dict(self.game.max_entities),
        }
        self.connection.send_json(READY, ready)
        self.hold = start["hold"]
        self.copies = [Copy(self, i) for i in range(start["num_envs"])]
        self.waiting: dict[int, list[TrainAgent]] = {}
        while True:
            kind, payload = self.connection.receive()
            if kind == CLOSE:
                return
            self.step(kind, payload)

    def step(self, kind: int, payload: bytes) -> None:
        self.ends, self.failures = [], []
        for copy in self.copies:
            copy.flags, copy.is_new = 0, False
        if kind == RESET:
            [count] = struct.unpack_from("<Q", payload)
            ids = list(struct.unpack_from(f"<{count}q", payload, 8))
            seeds = struct.unpack_from(f"<{count}Q", payload, 8 + 8 * count)
            self.row_of = {env_id: i for i, env_id in enumerate(ids)}
            for env_id, seed in zip(ids, seeds, strict=True):
                self.copies[env_id].start(seed)
        else:
            ids = list(range(len(self.copies)))
            self.row_of = {i: i for i in ids}
            seeds = struct.unpack_from(f"<{len(ids)}Q", payload)
            self.give(payload, 8 * len(ids))
            for copy, seed in zip(self.copies, seeds, strict=True):
                if not copy.is_playing or (not copy.run(copy.runner.resume) and not self.hold):
                    copy.start(seed)
        self.connection.send(STEP, self.message(ids))

    def give(self, payload: bytes, at: int) -> None:
        """Gives the actions to the agents that wait."""
        agents = [a for i in range(len(self.copies)) for a in self.waiting.get(i, ())]
        values: dict[str, list[Any]] = {}
        for name, space in self.game.action_space().items():
            counts = self.num_actors[name]
            total = sum(counts.values())
            if isinstance(space, ContinuousActionSpace):
                flat = np.frombuffer(payload, "<f4", total * len(space), at)
                chosen: list[Any] = flat.reshape(total, len(space)).tolist()
                at += -(-flat.nbytes // 8) * 8
            else:
                chosen = np.frombuffer(payload, "<i8", total, at).tolist()
                at += 8 * total
            values[name] = chosen
        given = {name: iter(chosen) for name, chosen in values.items()}
        for agent in agents:
            obs = agent.obs
            if obs is None:
                continue
            agent.give(answers_to(agent.kinds, obs, given))

    def message(self, ids: list[int]) -> bytes:
        shown: list[Obs | None] = []
        asked: list[Any] = []
        flags = []
        for env_id in ids:
            copy = self.copies[env_id]
            agents = copy.runner.agents if copy.is_playing else []
            self.waiting[env_id] = [agent for agent in agents if agent.obs is not None]
            for agent_id in range(self.game.num_agents):
                obs = agents[agent_id].obs if agents else None
                if obs is not None:
                    agents[agent_id].last_score = obs.score  # for `game_over` without `Obs`
                shown.append(obs)
                asked.append(agents[agent_id].kinds if obs is not None and agents else ())
            flags.append(copy.flags + (0 if copy.is_playing else 2))
        frame = self.frame(shown, asked)
        self.note_actors(ids, frame)
        asks = bytes(obs is not None for obs in shown)
        known = [0.0 if obs is None else float(obs.score) for obs in shown]
        scores = struct.pack(f"<{len(shown)}d", *known)
        ends = sorted(self.ends, key=lambda end: end[0])
        text = padded(json.dumps(self.failures).encode(), b" ") if self.failures else b""
        parts = [
            struct.pack("<QQ", len(ends), len(text)),
            padded(bytes(flags)),
            padded(asks),
            scores,
            self.metric_bytes([None if o is None else o.metrics for o in shown]),
            self.frame_bytes(frame),
        ]
        if ends:
            rows, codes, finals, last, kinds, metrics = zip(*ends, strict=True)
            parts += [
                struct.pack(f"<{len(ends)}q", *rows),
                struct.pack(f"<{len(ends)}q", *codes),
                struct.pack(f"<{len(ends)}d", *finals),
                self.metric_bytes(list(metrics)),
                self.frame_bytes(self.frame(list(last), list(kinds), is_final=True)),
            ]
        return b"".join([*parts, text])

    def note_actors(self, ids: list[int], frame: Frame) -> None:
        """Remembers how many actors wait for each action in each copy."""
        if not hasattr(self, "num_actors"):
            self.num_actors: dict[str, dict[int, int]] = {n: {} for n in frame.layout.actions}
        for name, where in frame.layout.actions.items():
            lengths = frame.lengths[where.row].reshape(len(ids), -1).sum(axis=1).tolist()
            self.num_actors[name] |= dict(zip(ids, lengths, strict=True))

    def metric_bytes(self, rows: list[Any]) -> bytes:
        return b"".join(
            struct.pack(f"<{len(rows)}d", *((row or {}).get(name, float("nan")) for row in rows))
            for name in self.metrics
        )

    def frame(self, shown: list[Obs | None], asked: list[Any], is_final: bool = False) -> Frame:
        batcher = ObsBatcher(self.game.schema, is_final=is_final)
        batcher.add_all(shown, asked)
        return batcher.write(LocalMemory())

    def frame_bytes(self, frame: Frame) -> bytes:
        layout = frame.layout
        present, slots = bytearray(len(layout.slots)), b""
        required = {e.values.index for e in layout.entities.values() if e.values.width}
        for action in layout.actions.values():
            if not type(action.space).__name__.startswith("Global"):
                required.add(action.actors.index)
            if isinstance(action.space, SelectEntityActionSpace):
                required.add(action.actees.index)
        for slot, array in zip(layout.slots, frame.slots, strict=True):
            if slot.index in required or array is not None:
                present[slot.index] = 1
                data = b"" if array is None else array.tobytes()
                slots += padded(data)
        return padded(bytes(present)) + frame.lengths.tobytes() + slots


def main(place: str, *metrics: str) -> None:
    module, _, name = place.partition(":")
    game = getattr(import_module(module), name or module.rpartition(".")[2])
    Server(game, list(metrics)).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
