"""Schemas of the replies, for the documentation at /docs."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

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


class State(BaseModel):
    """The state of a stream."""

    n: int = Field(description="number of examples tested")
    p: float | None = Field(description="the latest p-value; null before the first, and for the measure rate")
    log10_martingale: float | None = Field(description="log10 of the capital; null if the capital is 0")
    log10_max: float = Field(description="the highest value of log10_martingale in this test")
    alarm: bool
    alarm_at: int | None = Field(description="the example that raised the alarm")
    changepoint: int | None = Field(description="how many examples came before the change, as estimated at the alarm")
    guarantee: str
    rate: RateState | None = Field(None, description="only for the measure rate")


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
    created: str
    observed_at: str | None
    measure: str
    bet: str | None = Field(description="null for the measure rate, which needs no bet")
    alarm_kind: str
    threshold_log10: float | None = Field(description="log10 of the capital that raises the alarm, if it is constant")
    spark: Points | None = None


class Stream(Summary):
    """A stream with its configuration."""

    configuration: Configuration
    notes: list[str] = Field(description="remarks on settings that are allowed but rarely intended")


class Streams(BaseModel):
    """A page of streams."""

    streams: list[Summary]
    total: int
    offset: int
    limit: int


class IngestReply(BaseModel):
    """How many observations were accepted, and the state afterwards."""

    accepted: int
    duplicates: int
    next_seq: int
    state: State
    waiting: int
    expired: int


class LabelReply(IngestReply):
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


class History(Points):
    """The capital between two steps, thinned so that minima and maxima are kept."""

    p: list[float | None]
    exact: bool = Field(description="whether every step is included")
    stop: int = Field(description="the newest step")
    marks: list[Mark]


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


class Fleet(BaseModel):
    """Which streams have changed, with a false discovery rate of at most alpha."""

    alpha: float
    method: Literal["adjusted", "current"]
    rule: Literal["joined", "fixed"] = Field(description="weighted by the order of joining, or size fixed in advance")
    streams: int = Field(description="number of streams that exist")
    deleted: int = Field(description="number of streams that joined and were deleted, as far as is known")
    fleet_size: int | None = Field(description="how many names there will ever be, if fixed before the first joined")
    found: list[ChangedStream]
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
