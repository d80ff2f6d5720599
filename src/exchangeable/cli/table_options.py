"""Groups of options that the commands for tables share: the file, its columns, and the output."""

from __future__ import annotations

import csv
import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, get_type_hints

from exchangeable.cli.errors import USAGE, CommandError
from exchangeable.cli.options import (
    Author,
    Categorical,
    Decimal,
    Delimiter,
    Drop,
    Encoding,
    Features,
    Format,
    FormatOption,
    Header,
    Invalid,
    InvalidOption,
    Keep,
    Label,
    Missing,
    MissingOption,
    Plot,
    Report,
    Title,
)
from exchangeable.cli.output import check_plot, check_report, print_notes, save_plot, save_report, write

if TYPE_CHECKING:
    from exchangeable.analysis import Result
    from exchangeable.data.files import FileContents

Progress = Callable[[str, int, int], None]


class ColumnOptions(NamedTuple):
    """The columns of a table and how they are read."""

    label: Label = None
    features: Features = None
    drop: Drop = None
    keep: Keep = None
    categorical: Categorical = None
    missing: MissingOption = Missing.indicator
    invalid: InvalidOption = Invalid.error

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `exchangeable.test`, `compare` and `shift_test`."""
        lists = {name: split_names(getattr(self, name)) for name in ("drop", "keep", "categorical")}
        features = None if self.features is None else split_names(self.features)
        words = {"missing": self.missing.value, "invalid": self.invalid.value}
        return {"label": self.label, "features": features, **lists, **words}


class FileOptions(NamedTuple):
    """How a delimited file is read; None means that a setting is detected."""

    delimiter: Delimiter = None
    decimal: Decimal = None
    header: Header = None
    encoding: Encoding = None

    def read(self, file: str, columns: Mapping[str, Any], progress: Progress) -> FileContents:
        """Read those columns of a file that these arguments of `exchangeable.test` require."""
        from exchangeable.data.files import read_file
        from exchangeable.data.schema import Preparation

        delimiter = "\t" if self.delimiter in ("tab", r"\t") else self.delimiter
        how, needed = self._replace(delimiter=delimiter), Preparation(**columns).checked().selection()
        return read_file(file, **how._asdict(), **needed, progress=progress)


class ResultOptions(NamedTuple):
    """Where the result is written, and in which format."""

    plot: Plot = None
    report: Report = None
    title: Title = None
    author: Author = None
    format: FormatOption = Format.text

    def check(self) -> None:
        """Check, before the work starts, that the files can be written."""
        check_plot(self.plot)
        check_report(self.report, title=self.title, author=self.author)

    def write(self, result: Result) -> None:
        """Write the files, the notes to stderr and the verdict to stdout."""
        print_notes(result.notes)
        if self.plot is not None:
            save_plot(result.plot(), self.plot)
        if self.report is not None:
            save_report(result, self.report, title=self.title, author=self.author)
        write(result.to_json() if self.format is Format.json else result.text)


def split_names(values: list[str] | None) -> list[str]:
    """Split lists of columns at commas; names in quotes may contain commas, as in CSV.

    >>> split_names(["a, b", '"c,d"'])
    ['a', 'b', 'c,d']
    """
    try:
        return [name for value in values or () for name in next(csv.reader([value], skipinitialspace=True)) or [""]]
    except csv.Error:
        raise CommandError('a name with a line break must be in quotes, such as "a\\nb"', USAGE) from None


def option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each parameter that is a group of options (a named tuple) by the options themselves, for Typer."""
    hints = get_type_hints(command, include_extras=True)
    groups = {name: kind for name, kind in hints.items() if hasattr(kind, "_fields")}
    parameters: list[inspect.Parameter] = []
    for name, parameter in inspect.signature(command).parameters.items():
        types = get_type_hints(groups[name], include_extras=True) if name in groups else {name: hints[name]}
        defaults = groups[name]._field_defaults if name in groups else {name: parameter.default}
        parameters += [parameter.replace(name=key, annotation=types[key], default=defaults[key]) for key in types]

    @wraps(command)
    def run(**values: Any) -> None:
        made = {name: kind(**{key: values.pop(key) for key in kind._fields}) for name, kind in groups.items()}
        command(**made, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run
