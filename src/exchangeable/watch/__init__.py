"""Watch a stream of lines: JSONL, CSV or TSV in, one line of JSON out for each example; no server.

bytes --source--> lines --lines--> examples --Monitor--> steps --loop--> JSONL
                                                  state: a file to resume from
"""

from exchangeable.data.events import LineError, Reader, UsageError
from exchangeable.watch.loop import Shown, Watch, numbers
from exchangeable.watch.source import Signals, Source, Stopped
from exchangeable.watch.state import StateError, StateFile

__all__ = [
    "LineError",
    "Reader",
    "Shown",
    "Signals",
    "Source",
    "StateError",
    "StateFile",
    "Stopped",
    "UsageError",
    "Watch",
    "numbers",
]
