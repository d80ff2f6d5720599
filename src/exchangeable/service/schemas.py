"""The replies, for the documentation at /docs: what each holds and what it means."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from exchangeable.service.stream_config import Configuration


class Error(BaseModel):
    """A refusal: a code for programs, one sentence for people."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="allow")
    error: str
    message: str


class State(BaseModel):
    """Where a stream stands."""

    n: int = Field(description="examples tested")
    p: float | None = Field(description="the latest p-value; null before the first")
    log10_martingale: float | None = Field(description="the capital as a power of ten; null: bankrupt")
    log10_max: float = Field(description="its highest value in this test")
    alarm: bool
    alarm_at: int | None = Field(description="the example that raised the alarm")
    changepoint: int | None = Field(description="how many examples came before the change, as judged at the alarm")
    guarantee: str


class Points(BaseModel):
    """Some steps, in order."""

    n: list[int]
    log10: list[float | None]


class LeftOut(BaseModel):
    """Observations that were left out of the current test."""

    expired: int = Field(description="their label did not come within the wait")
    undelivered: int = Field(description="of these: the label came within the wait, but was delivered too late")
    never: int = Field(description="their label will never come, as stated by a client")
    crowded: int = Field(description="of the expired: left out by an earlier version, because too many were waiting")
    classes: dict[str, int] = Field(description="of the expired whose label came after all: how many had each label")


class Summary(BaseModel):
    """A stream without its configuration."""

    name: str
    state: State
    next_seq: int
    since: int = Field(description="examples before the test that runs now")
    resets: int
    waiting: int = Field(description="observations that wait for a label")
    expired: int = Field(description="observations whose label did not come in time, and which were not tested")
    left_out: LeftOut
    alarms: int
    created: str
    observed_at: str | None
    measure: str
    bet: str
    alarm_kind: str
    threshold_log10: float | None = Field(description="where the alarm sounds, if that is one value of the capital")
    spark: Points | None = None


class Stream(Summary):
    """A stream."""

    configuration: Configuration
    notes: list[str] = Field(description="remarks on settings that are allowed but rarely intended")


class Streams(BaseModel):
    """A page of streams."""

    streams: list[Summary]
    total: int
    offset: int
    limit: int


class Taken(BaseModel):
    """What became of observations."""

    accepted: int
    duplicates: int
    next_seq: int
    state: State
    waiting: int
    expired: int


class Labelled(Taken):
    """What became of labels."""

    late: int = Field(description="labels that came too late for their observations to be tested")


class Waiter(BaseModel):
    """An observation that waits."""

    seq: int
    id: str | None
    labelled: bool


class Waiters(BaseModel):
    """Observations that wait, in order."""

    waiting: list[Waiter]
    total: int
    limit: int
    expired: int
    left_out: LeftOut


class Mark(BaseModel):
    """Something that happened at a step."""

    n: int
    kind: Literal["alarm", "reset"]
    changepoint: int | None
    time: str


class History(Points):
    """The capital over a stretch, thinned so that lows and highs stay."""

    p: list[float | None]
    exact: bool = Field(description="whether every step of the stretch is here")
    stop: int = Field(description="the newest step")
    marks: list[Mark]


class Bet(BaseModel):
    """The betting function for the next p-value, and the p-values so far in 20 equal bins."""

    n: int
    p: list[float]
    density: list[float]
    histogram: list[int]
    recent: list[int]


class Found(BaseModel):
    """A stream that has changed."""

    name: str
    joined: int = Field(description="position among all streams that ever joined")
    test: int = Field(description="number of this test of the name, counted over resets and deletions")
    log10_e: float = Field(description="evidence, divided by test (test + 1)")
    log10_martingale: float | None


class Fleet(BaseModel):
    """Which streams have changed, with a false discovery rate of at most alpha."""

    alpha: float
    method: Literal["adjusted", "current"]
    rule: Literal["joined", "fixed"] = Field(description="weighted by the order of joining, or size fixed in advance")
    streams: int = Field(description="how many exist")
    deleted: int = Field(description="streams that joined and no longer exist, as far as is known")
    fleet_size: int | None = Field(description="how many names there will ever be, if fixed before the first joined")
    found: list[Found]
    log10_threshold: float | None = Field(
        description="which log10_e of all found has reached; with the rule joined: log10_e - log10(joined (joined + 1))"
    )
    promise: str


class Alerts(BaseModel):
    """The outbox."""

    pending: int
    dead: int
    alerts: list[dict[str, Any]]


class Status(BaseModel):
    """All is well."""

    status: Literal["ok"]
