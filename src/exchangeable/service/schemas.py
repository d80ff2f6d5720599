"""Schemas of the replies, for the documentation at /docs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from exchangeable.service.stream_config import Configuration


class Error(BaseModel):
    """A rejected request: a code for programs and a sentence for people."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    error: str
    message: str


class RateChange(BaseModel):
    """The share of values of at least ``value``, as estimated at the alarm."""

    value: float
    before: float
    after: float


class RateState(BaseModel):
    """The state of a rate."""

    shares: list[float] = Field(description="the share of each value in this test; empty before the first")
    change: RateChange | None


class RiskChange(BaseModel):
    """The mean loss before the rise and from there to the alarm, as estimated at the alarm."""

    before: float | None = Field(description="null if the rise started with the first loss")
    after: float


class RiskState(BaseModel):
    """The state of a risk."""

    limit: float
    mean: float | None = Field(description="the mean loss in this test; null before the first loss")
    low: float = Field(description="the lower end of the interval of the mean risk in this test")
    high: float
    change: RiskChange | None


class TableState(BaseModel):
    """The state of a table."""

    reference: bool = Field(description="whether the stream has a reference; without one it rejects rows")
    columns: int = Field(description="number of columns that are tested")
    rejected_by: list[str] = Field(description="columns and views with enough evidence of their own: the 20 strongest")
    rejected: int = Field(description="how many columns and views have enough evidence of their own")
    invalid_cells: int = Field(description='cells treated as missing, with "invalid": "missing"')


class State(BaseModel):
    """The state of a stream."""

    n: int = Field(description="number of examples tested")
    p: float | None = Field(description="the latest p-value; null before the first, and for rate, risk and table")
    log10_martingale: float | None = Field(description="log10 of the capital; null if the capital is 0")
    log10_max: float = Field(description="the highest value of log10_martingale in this test")
    alarm: bool
    alarm_at: int | None = Field(description="the example that raised the alarm")
    changepoint: int | None = Field(description="how many examples came before the change, as estimated at the alarm")
    guarantee: str
    rate: RateState | None = Field(None, description="only for the measure rate")
    risk: RiskState | None = Field(None, description="only for the measure risk")
    table: TableState | None = Field(None, description="only for the measure table")


class Points(BaseModel):
    """Steps and the capital at each, in order."""

    n: list[int]
    log10: list[float | None]


class LeftOut(BaseModel):
    """Observations that were left out of the current test."""

    expired: int = Field(description="the label did not arrive within the wait")
    undelivered: int = Field(description="of these: the label arrived within the wait, but was delivered too late")
    never: int = Field(description="the label will never arrive, as stated by a client")
    classes: dict[str, int] = Field(description="of the expired whose label arrived later: how many had each label")


class Summary(BaseModel):
    """A stream without its configuration."""

    name: str
    state: State
    next_seq: int
    since: int = Field(description="number of examples before the current test")
    resets: int
    waiting: int = Field(description="number of observations that wait for a label")
    expired: int = Field(description="number of observations whose label did not arrive in time, and were not tested")
    left_out: LeftOut
    alarms: int
    restarted: bool = Field(description="whether an alarm has started a new test since the last reset")
    created: str
    observed_at: str | None
    measure: str
    bet: str | None = Field(description="null for the measures rate, risk and table")
    alarm_kind: str
    threshold_log10: float | None = Field(description="log10 of the capital that raises the alarm, if it is constant")
    spark: Points | None = None


class StreamRetention(BaseModel):
    """How much history of a stream is kept; null is what the settings of the server say. No result depends on it."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", strict=True)
    observations: Annotated[int | None, Field(ge=0, le=10**12)] = Field(
        None, description="steps kept one by one; older ones remain as roll-ups"
    )
    rollups: Annotated[int | None, Field(ge=0, le=10**12)] = Field(
        None, description="newest steps with the finest roll-ups"
    )


class Stream(Summary):
    """A stream with its configuration."""

    configuration: Configuration
    retention: StreamRetention
    notes: list[str] = Field(description="remarks on settings that are allowed but rarely intended")


class CreatedStreams(BaseModel):
    """The outcome of creating many streams."""

    created: int
    existing: int = Field(description="they existed with the same configuration")


class Streams(BaseModel):
    """A page of streams."""

    streams: list[Summary]
    total: int
    alarms: int = Field(description="of these: how many have raised their alarm")
    restarted: int = Field(description="of these: how many have no alarm now, but had one that started a new test")
    offset: int
    limit: int


class Reply(BaseModel):
    """How many observations or labels were accepted, and the state afterwards."""

    accepted: int
    duplicates: int
    next_seq: int
    state: State
    waiting: int
    expired: int


class IngestReply(Reply):
    """How many observations were accepted, their numbers, and the state afterwards."""

    first_seq: int | None = Field(description="the number of the first new observation; null if there was none")
    last_seq: int | None = Field(description="the number of the last new observation; null if there was none")


class LabelReply(Reply):
    """How many labels were accepted, and the state afterwards."""

    late: int = Field(description="labels that arrived too late for their observations to be tested")


class WaitingObservation(BaseModel):
    """An observation that waits for its label, or for the labels of earlier ones."""

    seq: int
    id: str | None
    labelled: bool


class WaitingList(BaseModel):
    """A page of waiting observations, in order."""

    waiting: list[WaitingObservation]
    total: int
    limit: int
    expired: int
    left_out: LeftOut


class Mark(BaseModel):
    """An alarm or a reset."""

    n: int
    kind: Literal["alarm", "reset"]
    changepoint: int | None
    time: str


class Band(BaseModel):
    """The mean loss and its interval after some steps, at most 256, evenly spaced."""

    n: list[int]
    mean: list[float]
    low: list[float]
    high: list[float]


class History(Points):
    """The capital between two steps, thinned so that minima and maxima are kept."""

    p: list[float | None]
    exact: bool = Field(description="whether every step is included")
    stop: int = Field(description="the newest step")
    marks: list[Mark]
    risk: Band | None = Field(None, description="only for the measure risk")
    arrived: list[float | None] | None = Field(None, description="only with times: seconds since 1970")
    time: list[float | None] | None = Field(None, description="only with times: the time of the observation")


class StreamValues(BaseModel):
    """Observations between two steps, thinned so that minima and maxima are kept."""

    n: list[int]
    value: list[float]
    exact: bool = Field(description="whether every step that was read is included")
    width: int = Field(description="how many numbers an observation has")
    arrived: list[float | None] | None = None
    time: list[float | None] | None = None


class Values(BaseModel):
    """The mean of a column, or the share of one of its categories, over time."""

    n: list[int]
    value: list[float | None]
    reference: float | None = Field(description="the mean, or the share of the category, in the reference")
    category: str | None


class Column(BaseModel):
    """A column or a view of a table."""

    name: str
    kind: str
    log10_evidence: float | None = Field(description="log10 of the capital times the weight")
    rejected: bool
    alarm_at: int | None
    changepoint: int | None = Field(description="rows before the change, as estimated at the alarm of this column")
    part: str = Field(description="what has changed if it rejects: inputs, labels, or rows with labels")
    stopped: bool = Field(description="whether it holds max_rows rows and no longer bets (only without bins)")
    rows: list[int] = Field(default=[], description="the strangest recent rows, the strangest first")
    description: str = Field(description="how the latest rows differ from the reference")
    curve: Points
    values: Values | None = Field(description="null for views")


class Columns(BaseModel):
    """The columns and views of a table, the one with the most evidence first."""

    columns: list[Column]
    aside: dict[str, str] = Field(description="columns that are not tested, and why")


class Bet(BaseModel):
    """The betting function for the next p-value, and the p-values so far in 20 equal bins."""

    n: int
    p: list[float]
    density: list[float]
    histogram: list[int]
    recent: list[int]


class ChangedStream(BaseModel):
    """A stream that has changed."""

    name: str
    joined: int = Field(description="position among all streams that ever joined")
    test: int = Field(description="number of this test of the name, counted over resets and deletions")
    log10_e: float = Field(description="log10 of the evidence, divided by test (test + 1)")
    log10_martingale: float | None


class MissedStream(BaseModel):
    """A stream that has raised an alarm, but does not have enough evidence for its weight to be found."""

    name: str
    joined: int = Field(description="position among all streams that ever joined")
    test: int
    log10_e: float = Field(description="log10 of the evidence, divided by test (test + 1)")
    log10_needed: float = Field(description="the value of log10_e with which it would be found now")


class Fleet(BaseModel):
    """Which streams have changed, with a false discovery rate of at most alpha."""

    alpha: float
    method: Literal["adjusted", "current"]
    rule: Literal["joined", "fixed"] = Field(description="weighted by the order of joining, or size fixed in advance")
    streams: int = Field(description="number of streams that exist")
    deleted: int = Field(description="number of streams that joined and were deleted, as far as is known")
    fleet_size: int | None = Field(description="how many names there will ever be, if fixed before the first joined")
    found: list[ChangedStream]
    missed: list[MissedStream] = Field(description="alarms that are not among the found: the 100 strongest")
    missed_count: int
    log10_threshold: float | None = Field(
        description="reached by log10_e of each stream found; with rule joined by log10_e - log10(joined (joined + 1))"
    )
    promise: str


class Alerts(BaseModel):
    """The outbox of alerts."""

    pending: int
    dead: int
    alerts: list[dict[str, Any]]


class Health(BaseModel):
    """The server is healthy."""

    status: Literal["ok"]
