"""`exchangeable watch --reference TABLE`: rows with named columns are compared with a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from exchangeable.alarms import Ville
from exchangeable.cli.errors import USAGE, CommandError, usage_errors
from exchangeable.cli.output import print_notes
from exchangeable.cli.watch_run import run_watch
from exchangeable.validation import format_value

if TYPE_CHECKING:
    from exchangeable.table_monitor import TableMonitor
    from exchangeable.watch import StateFile
    from exchangeable.watch.rows import Format, RowReader


class TableOptions(NamedTuple):
    """The options that define a monitor of rows, and how rows are read."""

    reference: Path
    label: str | None
    alpha: float | None
    period: float | None
    bins: int | None
    on_alarm: str
    seed: int | None
    keep: list[str] | None
    categorical: list[str] | None
    invalid: str | None
    wait: str | None
    delay: str | None
    id: str | None
    time: str | None

    def checked(self, unused: Mapping[str, object]) -> TableOptions:
        """Check that the options fit together, and that none of ``unused``, which do not apply, is given."""
        for option, value in unused.items():
            if value is not None:
                raise CommandError(f"--{option} does not apply to a reference table, got {value}", USAGE)
        if str(self.reference) == "-":
            raise CommandError("--reference must be a file, got -, the standard input", USAGE)
        if self.alpha is not None and self.period is not None:
            raise CommandError("--alpha and --period cannot be combined", USAGE)
        if self.wait is not None and self.label is None:
            raise CommandError("--wait requires --label, the column of the labels that come later", USAGE)
        for option in ("delay", "id", "time"):
            if getattr(self, option) is not None and self.wait is None:
                raise CommandError(f"--{option} requires --wait", USAGE)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `exchangeable.TableMonitor`, without the reference and the seed."""
        return {
            "label": self.label,
            "alpha": Ville().alpha if self.alpha is None else self.alpha,
            "period": self.period,
            "bins": self.bins,
            "wait": self.wait if self.wait in (None, "forever") else _seconds(str(self.wait)),
            "delay": self.delay,
            "on_alarm": self.on_alarm,
            "invalid": str(self.invalid or "error"),
            "keep": self.keep or [],
            "categorical": self.categorical or [],
        }

    def record(self) -> dict[str, Any]:
        """Return the options that a state file is created with; a resumed watch must have the same."""
        content = hashlib.sha256(self.reference.read_bytes()).hexdigest()
        others = {"rate": None, "risk": None, "measure": None}
        return {**others, "reference": content, **self.settings, "id": self.id, "time": self.time, "seed": self.seed}

    def build(self, *, quiet: bool) -> TableMonitor:
        """Read the reference and build the monitor; notes say how it was read and which columns are not tested."""
        from exchangeable.data.errors import naming
        from exchangeable.data.files import read_file
        from exchangeable.table_monitor import TableMonitor

        contents = read_file(self.reference)
        with naming(contents.name), usage_errors():
            monitor = TableMonitor(contents.frame, **self.settings, seed=self.seed)
        if not quiet:
            times = [name for name, reason in monitor.schema.aside if reason == "times"]
            unused = [f"column {format_value(name)} holds times, so it is not tested" for name in times]
            print_notes(f"{contents.name}: {note}" for note in (*contents.notes, *monitor.schema.notes, *unused))
        return monitor


def watch_table(
    options: TableOptions,
    file: str,
    format: Format,  # noqa: A002
    header: bool,
    every: int | None,
    alarms_only: bool,
    quiet: bool,
    state: Path | None,
    save_every: float,
) -> None:
    """Watch the rows of a file or of standard input."""
    from exchangeable.table_monitor import TableMonitor
    from exchangeable.watch import StateFile
    from exchangeable.watch.rows import RowReader
    from exchangeable.watch.table import TableWatch

    def prepare(file: StateFile | None) -> tuple[TableMonitor, RowReader]:
        monitor = None if file is None else file.load((TableMonitor,))
        if monitor is None:
            monitor = options.build(quiet=quiet)
            if file is None and options.seed is None and not quiet:
                print_notes([f"the seed is {monitor.seed}: --seed {monitor.seed} repeats this run"])
        names = {"id": options.id or "id", "time": options.time or "time"}
        return monitor, RowReader(monitor, format, header=header, **names)

    free = ["seed"] * (options.seed is None)
    state_file = None if state is None else StateFile(state, options.record(), free=free)
    output = partial(TableWatch, every=every, alarms_only=alarms_only, quiet=quiet)
    run_watch(file, state_file, prepare, partial(output, state=state_file, save_every=save_every))


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"--wait must be a number of seconds or forever, got {text!r}", USAGE) from None
