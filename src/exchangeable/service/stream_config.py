"""A stream's configuration: what a client may ask for, in canonical form, and the monitor made from it."""

from __future__ import annotations

import json
import math
import warnings
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator, ValidationError, WithJsonSchema

from exchangeable import alarms
from exchangeable.catalogue import BETS, MEASURES, default_bet
from exchangeable.measures import Frozen
from exchangeable.monitor import BetWarning, Monitor, bet_advice
from exchangeable.protocols import Alarm, Measure
from exchangeable.pvalues import Precomputed
from exchangeable.service.problems import Problem

NAME = r"^[a-z0-9][a-z0-9._-]{0,63}$"
LABELLED = frozenset(
    {"nearest-neighbour", "nearest-residual", "conditional-nearest-neighbour", "conditional-nearest-distance"}
)
LONGEST_WAIT = 1e10  # seconds, some 300 years
MOST_SEED = 2**53  # what every JSON reader keeps exactly
warnings.filterwarnings("ignore", category=BetWarning, module=__name__)  # the notes in the reply contain it
Kept = Literal[
    "nearest-neighbour",
    "nearest-distance",
    "nearest-residual",
    "conditional-nearest-neighbour",
    "conditional-nearest-distance",
]


class _Part(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class OfNumbers(_Part):
    """Numbers, ranked as they are."""

    kind: Literal["value"] = "value"


class OfNeighbours(_Part):
    """Rows of numbers, compared with all before: the pool holds at most ``cap`` examples."""

    kind: Kept
    cap: Annotated[int, Field(ge=2, le=1_000_000)] = 10_000


class OfScores(_Part):
    """Scores of a model fixed beforehand, binned between quantiles of reference scores: constant memory."""

    kind: Literal["frozen"]
    reference: Annotated[list[float], Field(min_length=2)]
    bins: Annotated[int, Field(ge=2, le=2**20)] = 1024


class OfPValues(_Part):
    """P-values that the client brings along."""

    kind: Literal["p-values"]


class BetOn(_Part):
    """A bet, by its name on the command line."""

    kind: Annotated[str, Field(json_schema_extra={"enum": list[Any](BETS)})]


class Once(_Part):
    """Ville's alarm: the chance of ever a false alarm is at most alpha."""

    kind: Literal["ville"] = "ville"
    alpha: Annotated[float, Field(ge=1e-300, lt=1.0)] = 0.01


class Repeatedly(_Part):
    """Alarms for watching without end: the mean time to a false alarm is at least the period."""

    kind: Literal["cusum", "shiryaev-roberts"]
    period: Annotated[float, Field(gt=1.0, le=1e300)] = 10_000.0


def _wait(given: Any) -> Any:
    if isinstance(given, (int, float)) and not isinstance(given, bool) and 0.0 < given <= LONGEST_WAIT:
        return float(given)
    if given != "forever":
        raise ValueError(f"be 'forever', or a number of seconds above 0 and at most {LONGEST_WAIT:g}")
    return given


Wait = Annotated[
    float | Literal["forever"],
    PlainValidator(_wait),
    WithJsonSchema(
        {"anyOf": [{"const": "forever"}, {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_WAIT}]}
    ),
]


class Labels(_Part):
    """How long observations wait for labels that come late, on whose clock, and how many may wait at once."""

    wait: Wait = "forever"
    clock: Literal["client", "server"] = "client"
    most: Annotated[int, Field(ge=0, le=10_000_000)] = 10_000

    @property
    def seconds(self) -> float:
        """The wait in seconds; inf means forever."""
        return math.inf if self.wait == "forever" else self.wait


Measures = Annotated[OfNumbers | OfNeighbours | OfScores | OfPValues, Field(discriminator="kind")]
Alarms = Annotated[Once | Repeatedly, Field(discriminator="kind")]


class Configuration(_Part):
    """How a stream is monitored. Every part may be left out; the canonical form contains all of them.

    The default bet is the one that suits the alarm; the default seed is drawn when the stream is created.
    """

    measure: Measures = OfNumbers()
    alarm: Alarms = Once()
    bet: Annotated[BetOn, Field(default_factory=lambda earlier: BetOn(kind=default_bet(earlier["alarm"].kind)))]
    seed: Annotated[int | None, Field(ge=0, le=MOST_SEED)] = None
    on_alarm: Literal["latch", "restart"] = "latch"
    labels: Labels = Labels()

    @property
    def needs_labels(self) -> bool:
        """Whether an observation cannot be ranked without its label."""
        return self.measure.kind in LABELLED

    @property
    def cap(self) -> int | None:
        """How many examples the pool may hold."""
        return self.measure.cap if isinstance(self.measure, OfNeighbours) else None

    @property
    def scalar(self) -> bool:
        """Whether an observation is one number."""
        return not isinstance(self.measure, OfNeighbours)

    @property
    def notes(self) -> list[str]:
        """Remarks on what is allowed but rarely intended."""
        advice = bet_advice(BETS[self.bet.kind](), self._alarm())
        return [] if advice is None else [advice]

    def with_seed(self, seed: int) -> Configuration:
        """The same configuration with this seed, unless it already has one."""
        return self if self.seed is not None else self.model_copy(update={"seed": seed})

    def like(self, kept: Configuration) -> Configuration:
        """The same with the seed and the bet of another, where they were left out."""
        made = self if "bet" in self.model_fields_set else self.model_copy(update={"bet": kept.bet})
        return made.model_copy(update={"seed": kept.seed}) if made.seed is None else made

    def canonical(self) -> str:
        """The one text of this configuration: equal configurations have equal texts."""
        return json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))

    def monitor(self, start: int = 0) -> Monitor:
        """A fresh monitor for what follows the first ``start`` examples."""
        parts = self._measure(), BETS[self.bet.kind](), self._alarm()
        return Monitor(*parts, seed=self.seed, on_alarm=self.on_alarm, start=start)

    def _alarm(self) -> Alarm:
        if isinstance(self.alarm, Once):
            return alarms.Ville(self.alarm.alpha)
        return REPEATEDLY[self.alarm.kind](self.alarm.period)

    def _measure(self) -> Measure | Precomputed:
        if isinstance(self.measure, OfPValues):
            return Precomputed()
        if isinstance(self.measure, OfScores):
            return Frozen(reference=self.measure.reference, bins=self.measure.bins)
        return MEASURES[self.measure.kind]()


REPEATEDLY: dict[str, type[alarms.Cusum | alarms.ShiryaevRoberts]] = {
    "cusum": alarms.Cusum,
    "shiryaev-roberts": alarms.ShiryaevRoberts,
}


def configuration(given: Any, *, cap: int = 50_000, waiting: int = 100_000, reference: int = 100_000) -> Configuration:
    """Admit what a client asks for, within the operator's limits.

    >>> configuration({"alarm": {"kind": "ville", "alpha": 0.05}}).monitor().guarantee
    'On exchangeable data the chance that this alarm is ever raised is at most 0.05.'
    >>> configuration({"alarm": {"alpha": 2}})
    Traceback (most recent call last):
    ...
    exchangeable.service.problems.Problem: configuration.alarm.alpha must satisfy: input should be less than 1, got 2
    """
    if isinstance(given, dict):
        given = {key: _kinded(key, part) for key, part in given.items()}
    try:
        made = Configuration.model_validate(given)
    except ValidationError as error:
        raise Problem(422, "bad-configuration", _sentence(error)) from error
    if made.bet.kind not in BETS:
        raise _refusal("bet.kind", f"be one of {', '.join(BETS)}", made.bet.kind)
    if made.cap is not None and made.cap > cap:
        raise _refusal("measure.cap", f"be at most {cap}", made.cap)
    if made.needs_labels and made.labels.most > waiting:
        raise _refusal("labels.most", f"be at most {waiting}", made.labels.most)
    if isinstance(made.measure, OfScores) and len(made.measure.reference) > reference:
        raise _refusal("measure.reference", f"hold at most {reference} numbers", len(made.measure.reference))
    try:
        made.monitor()
    except ValueError as error:
        raise Problem(422, "bad-configuration", f"configuration must describe a monitor: {error}") from error
    return made


def stored(text: str) -> Configuration:
    """A configuration from its canonical text."""
    return Configuration.model_validate_json(text)


def _kinded(key: str, part: Any) -> Any:
    """A part without a kind is of the default kind."""
    kinds = {"measure": "value", "alarm": "ville"}
    return {"kind": kinds[key], **part} if key in kinds and isinstance(part, dict) else part


def _refusal(where: str, law: str, got: object) -> Problem:
    return Problem(422, "bad-configuration", f"configuration.{where} must {law}, got {got!r}")


def _sentence(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    where = ".".join(["configuration", *(str(part) for part in first["loc"] if str(part) not in KINDS)])
    if first["type"] in PLAINLY:
        return f"{where} must {PLAINLY[first['type']]}"
    if first["type"] == "value_error":  # raised by a validator of ours
        return f"{where} must {first['ctx']['error']}, got {_shown(first['input'])}"
    law = first["msg"][0].lower() + first["msg"][1:]
    return f"{where} must satisfy: {law}, got {_shown(first['input'])}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


PLAINLY = {
    "extra_forbidden": "be left out: there is no such key here",
    "missing": "be given",
    "model_attributes_type": "be a JSON object",
    "model_type": "be a JSON object",
}
KINDS = {"value", "frozen", "p-values", "ville", *REPEATEDLY, *MEASURES}  # steps of pydantic's paths that are not keys
