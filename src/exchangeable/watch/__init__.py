"""Watch a stream of lines without a server: JSONL, CSV or TSV in, one line of JSON out for each example.

bytes --Source--> lines --Reader--> examples --Monitor--> steps --Watch--> JSONL
                                                  StateFile: where to resume
"""

from exchangeable.data.events.errors import LineError, UsageError
from exchangeable.data.events.reader import Reader
from exchangeable.watch.loop import OutputOptions, Watch, read_numbers
from exchangeable.watch.source import Signals, Source, Stopped
from exchangeable.watch.state import StateError, StateFile

__all__ = [
    "LineError",
    "OutputOptions",
    "Reader",
    "Signals",
    "Source",
    "StateError",
    "StateFile",
    "Stopped",
    "UsageError",
    "Watch",
    "read_numbers",
]
