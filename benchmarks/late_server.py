"""The server's engine, in this process, on streams whose labels come late."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from typing import Any

import numpy as np

import late
from exchangeable.data.events.schema import LateLabel
from exchangeable.service.engine import Engine
from exchangeable.service.parsing import Batch, Extras
from exchangeable.service.server_config import Settings
from exchangeable.service.store import Store
from exchangeable.service.stream_config import parse_configuration


class Place:
    """An engine on a database, with one stream; consecutive events of one kind may share a request."""

    def __init__(self, path: Path, stream: dict[str, Any]) -> None:
        self.now = 0.0
        self.store = Store(path)
        self.engine = Engine(self.store, Settings(snapshot_every=500), lambda news, alerted: None)
        self.engine.clock = lambda: self.now
        self.engine.start()
        self.engine.create("a", parse_configuration(stream)).result(60)
        labels = stream["labels"]
        self.timed = labels.get("clock") != "server" and labels.get("wait") != "forever"

    def end(self) -> None:
        self.engine.stop()
        self.store.close()

    def play(self, x: Any, y: list[Any], events: list[late.Event], most: int = 1) -> dict[str, Any]:
        """Play these events, at most ``most`` of one kind per request; return the last reply and all p-values."""
        future: Future[Any] | None = None
        while events:
            same = next((k for k, event in enumerate(events) if event.kind != events[0].kind), len(events))
            part, events = events[: min(same, most)], events[min(same, most) :]
            places, self.now = [event.i for event in part], part[-1].time
            times: list[Any] = [event.time if self.timed else None for event in part]
            if part[0].kind == "observe":
                extras = Extras(None, [f"{i}" for i in places], times)
                future = self.engine.observe("a", Batch(np.array(places) + 1, np.array(x)[places], extras))
            else:
                lines = [LateLabel(f"{i}", y[i], time) for i, time in zip(places, times, strict=True)]
                future = self.engine.label("a", lines)
            if len(events) % 64 == 0:
                future.result(60)
        assert future is not None
        done: dict[str, Any] = future.result(60)
        with self.store.read() as connection:
            rows = connection.execute("SELECT seq, p FROM steps ORDER BY first").fetchall()
        done["p"] = np.concatenate([np.frombuffer(p, "<f8") for _, p in rows]) if rows else np.empty(0)
        return done
