"""The configuration of a stream: what a client may choose, its canonical form, and the monitor built from it."""

from __future__ import annotations

import math
import warnings
from typing import Annotated, Any, ClassVar, Literal

import msgspec
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema

from exchangeable import alarms
from exchangeable.catalogue import BETS, MEASURES, default_bet
from exchangeable.evidence import EvidenceMonitor
from exchangeable.measures import Frozen
from exchangeable.monitor import BetWarning, Monitor, bet_advice
from exchangeable.protocols import Alarm, Measure
from exchangeable.pvalues import Precomputed
from exchangeable.rate import MAX_VALUES, RateMonitor
from exchangeable.risk import UNIT, Risk
from exchangeable.service.problems import Problem, invalid
from exchangeable.service.table_test import TableTest
from exchangeable.table_monitor import TableMonitor
from exchangeable.validation import format_value

NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
LABELLED = frozenset(
    {"nearest-neighbour", "nearest-residual", "conditional-nearest-neighbour", "conditional-nearest-distance"}
)
MAX_WAIT = 1e10  # seconds, about 300 years
MAX_SEED = MAX_VALUE = 2**53  # every JSON reader keeps integers up to this exactly
warnings.filterwarnings("ignore", category=BetWarning, module=__name__)  # the notes of the reply contain it
NeighbourKind = Literal[
    "nearest-neighbour",
    "nearest-distance",
    "nearest-residual",
    "conditional-nearest-neighbour",
    "conditional-nearest-distance",
]


class _ConfigModel(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class ValueMeasure(_ConfigModel):
    """Single numbers, ranked by their value."""

    kind: Literal["value"] = "value"


class NeighbourMeasure(_ConfigModel):
    """Rows of numbers, compared with all earlier ones; the pool holds at most ``cap`` examples."""

    kind: NeighbourKind
    cap: Annotated[int, Field(ge=2, le=1_000_000)] = 10_000


class FrozenMeasure(_ConfigModel):
    """Scores of a fixed model, binned between the quantiles of reference scores; constant memory."""

    kind: Literal["frozen"]
    reference: Annotated[list[float], Field(min_length=2)]
    bins: Annotated[int, Field(ge=2, le=2**20)] = 1024


class PrecomputedMeasure(_ConfigModel):
    """P-values that the client computes."""

    kind: Literal["p-values"]


def _validate_values(values: Any) -> Any:
    numbers = values if isinstance(values, list) else []
    valid = [type(value) in (int, float) and abs(value) <= MAX_VALUE for value in numbers]
    if not all(valid) or not 2 <= len(set(numbers)) == len(numbers) <= MAX_VALUES:
        raise ValueError(f"be 2 to {MAX_VALUES} different numbers of magnitude at most {MAX_VALUE}, in order")
    return values


RateValues = Annotated[
    list[int | float],
    PlainValidator(_validate_values),
    WithJsonSchema({"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": MAX_VALUES}),
]


class RateMeasure(_ConfigModel):
    """Events, 0 or 1, or a few ordered values: their rate is monitored, without ranks and without a bet."""

    kind: Literal["rate"]
    values: RateValues = [0, 1]
    direction: Literal["up", "down", "both"] = "both"


class RiskMeasure(_ConfigModel):
    """Losses between ``bounds``: is their mean above the limit? They need not be exchangeable, and there is no bet."""

    kind: Literal["risk"]
    limit: float
    bounds: Annotated[list[float], Field(min_length=2, max_length=2)] = [*UNIT]


Names = Annotated[list[Annotated[str, Field(max_length=256)]], Field(max_length=4096)]


class TableMeasure(_ConfigModel):
    """Rows with named columns, compared with a reference that is sent once: which column has changed?

    ``label`` is the column that a model predicts. ``bins`` is how many bins values are ranked in, in constant memory;
    null ranks them exactly, and compares full rows with at most ``max_rows`` others.
    """

    kind: Literal["table"]
    label: str | None = None
    bins: Annotated[int | None, Field(ge=2, le=2**20)] = 256
    columns: Literal["each", "none"] = "each"
    invalid: Literal["error", "missing"] = "error"
    max_rows: Annotated[int, Field(ge=4, le=1_000_000)] = 10_000
    categorical: Names = []
    keep: Names = []


BETLESS = ("rate", "risk", "table")  # measures without a bet to choose


class BetConfig(_ConfigModel):
    """A bet, by its name on the command line."""

    kind: Annotated[str, Field(json_schema_extra={"enum": list[Any](BETS)})]


class VilleAlarm(_ConfigModel):
    """Ville's alarm: the probability that it is ever false is at most alpha."""

    kind: Literal["ville"] = "ville"
    alpha: Annotated[float, Field(ge=1e-300, lt=1.0)] = 0.01


class RepeatedAlarm(_ConfigModel):
    """Alarms for endless monitoring: the mean time to a false alarm is at least the period."""

    kind: Literal["cusum", "shiryaev-roberts"]
    period: Annotated[float, Field(gt=1.0, le=1e300)] = 10_000.0


def _validate_wait(value: Any) -> Any:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0.0 < value <= MAX_WAIT:
        return float(value)
    if value != "forever":
        raise ValueError(f"be 'forever', or a number of seconds above 0 and at most {MAX_WAIT:g}")
    return value


Wait = Annotated[
    float | Literal["forever"],
    PlainValidator(_validate_wait),
    WithJsonSchema({"anyOf": [{"const": "forever"}, {"type": "number", "exclusiveMinimum": 0, "maximum": MAX_WAIT}]}),
]


class Labels(_ConfigModel):
    """How long observations wait for late labels, by whose clock, and how many may wait at once."""

    wait: Wait = "forever"
    clock: Literal["client", "server"] = "client"
    most: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000

    @property
    def seconds(self) -> float:
        """The wait in seconds; inf means forever."""
        return math.inf if self.wait == "forever" else self.wait


Measures = Annotated[
    ValueMeasure | NeighbourMeasure | FrozenMeasure | PrecomputedMeasure | RateMeasure | RiskMeasure | TableMeasure,
    Field(discriminator="kind"),
]
Alarms = Annotated[VilleAlarm | RepeatedAlarm, Field(discriminator="kind")]


def _default_labels(earlier: dict[str, Any]) -> Labels | None:
    return None if isinstance(earlier.get("measure"), TableMeasure) else Labels()


def _default_bet(earlier: dict[str, Any]) -> BetConfig | None:
    if isinstance(earlier.get("measure"), (RateMeasure, RiskMeasure, TableMeasure)):
        return None
    return BetConfig(kind=default_bet(earlier["alarm"].kind))


class Configuration(_ConfigModel):
    """How a stream is monitored. Every part is optional; the canonical form contains all of them.

    The default bet is the one that suits the alarm, and null for a rate, a risk or a table. The default
    seed is drawn when the stream is created. ``labels`` of a table are null unless its labels come later than its rows.
    """

    measure: Measures = ValueMeasure()
    alarm: Alarms = VilleAlarm()
    bet: Annotated[BetConfig | None, Field(default_factory=_default_bet)]
    seed: Annotated[int | None, Field(ge=0, le=MAX_SEED)] = None
    on_alarm: Literal["latch", "restart"] = "latch"
    labels: Annotated[Labels | None, Field(default_factory=_default_labels)]

    @property
    def needs_labels(self) -> bool:
        """Whether an observation cannot be ranked without its label."""
        return self.measure.kind in LABELLED

    @property
    def late_rows(self) -> bool:
        """Whether rows of a table are tested at once, and their labels may come later."""
        return isinstance(self.measure, TableMeasure) and self.labels is not None

    @property
    def takes_labels(self) -> bool:
        """Whether observations wait for labels."""
        return self.needs_labels or self.late_rows

    @property
    def cap(self) -> int | None:
        """How many examples the pool may hold."""
        return self.measure.cap if isinstance(self.measure, NeighbourMeasure) else None

    @property
    def scalar(self) -> bool:
        """Whether an observation is a single number."""
        return not isinstance(self.measure, (NeighbourMeasure, TableMeasure))

    @property
    def notes(self) -> list[str]:
        """Remarks on settings that are allowed but rarely intended."""
        advice = None if self.bet is None else bet_advice(BETS[self.bet.kind](), self._alarm())
        return [] if advice is None else [advice]

    def with_seed(self, seed: int) -> Configuration:
        """Return the configuration with this seed, unless it already has one."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})

    def like(self, stored: Configuration) -> Configuration:
        """Return the configuration with the seed and the bet of a stored one, where they were left out."""
        completed = self if "bet" in self.model_fields_set else self.model_copy(update={"bet": stored.bet})
        return completed.model_copy(update={"seed": stored.seed}) if completed.seed is None else completed

    def canonical(self) -> str:
        """Return the canonical JSON: equal configurations have equal texts."""
        return msgspec.json.encode(self.model_dump(mode="json"), order="sorted").decode()

    def monitor(self, start: int = 0) -> Monitor | EvidenceMonitor | TableTest:
        """Return a new monitor, for the examples after the first ``start``; that of a table needs its reference."""
        if isinstance(self.measure, TableMeasure):
            return TableTest(None, self.on_alarm, start)
        if isinstance(self.measure, (RateMeasure, RiskMeasure)):
            return self._evidence_monitor(self.measure, start)
        parts = self._measure(), None if self.bet is None else BETS[self.bet.kind](), self._alarm()
        return Monitor(*parts, seed=self.seed, on_alarm=self.on_alarm, start=start)

    @property
    def monitor_type(self) -> type[Monitor] | type[EvidenceMonitor] | type[TableTest]:
        """The class of the monitor."""
        kinds = {"rate": RateMonitor, "risk": Risk, "table": TableTest}
        return kinds.get(self.measure.kind, Monitor)

    def table_test(self, reference: Any, start: int = 0) -> TableTest:
        """Return a new test of rows against a reference, for the rows after the first ``start``."""
        settings = self.measure.model_dump(exclude={"kind"})
        if self.labels is not None:
            settings |= {"wait": self.labels.wait, "most": self.labels.most}
        monitor = TableMonitor(reference, seed=self.seed, on_alarm=self.on_alarm, **settings, **self._level())
        return TableTest(monitor, self.on_alarm, start)

    def _level(self) -> dict[str, Any]:
        return {"alpha": self.alarm.alpha} if isinstance(self.alarm, VilleAlarm) else {"period": self.alarm.period}

    def _evidence_monitor(self, measure: RateMeasure | RiskMeasure, start: int) -> EvidenceMonitor:
        more: dict[str, Any] = {**self._level(), "on_alarm": self.on_alarm, "start": start}
        if isinstance(measure, RateMeasure):
            return RateMonitor(values=measure.values, direction=measure.direction, **more)
        lower, upper = measure.bounds
        return Risk(measure.limit, bounds=(lower, upper), **more)

    def _alarm(self) -> Alarm:
        if isinstance(self.alarm, VilleAlarm):
            return alarms.Ville(self.alarm.alpha)
        return REPEATED_ALARMS[self.alarm.kind](self.alarm.period)

    def _measure(self) -> Measure | Precomputed:
        if isinstance(self.measure, PrecomputedMeasure):
            return Precomputed()
        if isinstance(self.measure, FrozenMeasure):
            return Frozen(reference=self.measure.reference, bins=self.measure.bins)
        return MEASURES[self.measure.kind]()


REPEATED_ALARMS: dict[str, type[alarms.Cusum | alarms.ShiryaevRoberts]] = {
    "cusum": alarms.Cusum,
    "shiryaev-roberts": alarms.ShiryaevRoberts,
}


def parse_configuration(
    values: Any, *, cap: int = 50_000, waiting: int = 100_000, reference: int = 100_000
) -> Configuration:
    """Validate the configuration that a client asks for, within the operator's limits.

    >>> parse_configuration({"alarm": {"kind": "ville", "alpha": 0.05}}).monitor().guarantee
    'On exchangeable data the chance that this alarm is ever raised is at most 0.05.'
    >>> parse_configuration({"alarm": {"alpha": 2}})
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: configuration.alarm.alpha must satisfy: input should be less than 1, got 2
    """
    if isinstance(values, dict):
        values = {key: _with_kind(key, part) for key, part in values.items()}
    try:
        configuration = Configuration.model_validate(values)
    except ValidationError as error:
        raise Problem(422, "bad-configuration", _describe(error)) from error
    _check_limits(configuration, cap, waiting, reference)
    try:
        configuration.monitor()
    except ValueError as error:
        raise invalid(error, "bad-configuration", f"configuration must describe a monitor: {error}") from error
    return configuration


def _check_limits(configuration: Configuration, cap: int, waiting: int, reference: int) -> None:
    measure, labels = configuration.measure, configuration.labels
    _check_bet(configuration)
    if configuration.cap is not None and configuration.cap > cap:
        raise _invalid("measure.cap", f"be at most {cap}", configuration.cap)
    if labels is None and not isinstance(measure, TableMeasure):
        raise _invalid("labels", "be an object", None)
    if labels is not None and isinstance(measure, TableMeasure) and measure.label is None:
        raise _invalid("labels", "be left out for a table without measure.label", labels.model_dump())
    if labels is not None and isinstance(measure, TableMeasure) and not labels.most:
        raise _invalid("labels.most", "be at least 1 for a table", labels.most)
    if labels is not None and configuration.takes_labels and labels.most > waiting:
        raise _invalid("labels.most", f"be at most {waiting}", labels.most)
    if isinstance(measure, TableMeasure) and measure.bins is None and measure.max_rows > cap:
        raise _invalid("measure.max_rows", f"be at most {cap}", measure.max_rows)
    if isinstance(measure, FrozenMeasure) and len(measure.reference) > reference:
        raise _invalid("measure.reference", f"hold at most {reference} numbers", len(measure.reference))


def _check_bet(configuration: Configuration) -> None:
    bet, kind = configuration.bet, configuration.measure.kind
    if kind in BETLESS:
        if bet is not None:
            raise _invalid("bet", f"be left out for the measure {kind}", bet.kind)
        if configuration.alarm.kind == "cusum":
            raise _invalid("alarm.kind", f"be ville or shiryaev-roberts for the measure {kind}", "cusum")
    elif bet is None or bet.kind not in BETS:
        raise _invalid("bet.kind", f"be one of {', '.join(BETS)}", None if bet is None else bet.kind)


def load_configuration(text: str) -> Configuration:
    """Return a configuration from its canonical JSON."""
    return Configuration.model_validate_json(text)


def _with_kind(key: str, part: Any) -> Any:
    """Add the default kind to a part without one."""
    kinds = {"measure": "value", "alarm": "ville"}
    return {"kind": kinds[key], **part} if key in kinds and isinstance(part, dict) else part


def _invalid(where: str, rule: str, got: object) -> Problem:
    return Problem(422, "bad-configuration", f"configuration.{where} must {rule}, got {got!r}")


def _describe(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(["configuration", *(str(part) for part in first["loc"] if str(part) not in KINDS)])
    if first["type"] in PLAIN_RULES:
        return f"{where} must {PLAIN_RULES[first['type']]}"
    if first["type"] == "value_error":  # raised by `_validate_wait`
        return f"{where} must {first['ctx']['error']}, got {format_value(first['input'])}"
    rule = first["msg"][0].lower() + first["msg"][1:]
    return f"{where} must satisfy: {rule}, got {format_value(first['input'])}"


PLAIN_RULES = {
    "extra_forbidden": "be left out: there is no such key",
    "missing": "be given",
    "model_attributes_type": "be a JSON object",
    "model_type": "be a JSON object",
}
KINDS = {
    "value",
    "frozen",
    "p-values",
    "rate",
    "risk",
    "table",
    "ville",
    *REPEATED_ALARMS,
    *MEASURES,
}  # steps in pydantic's paths that are not keys
