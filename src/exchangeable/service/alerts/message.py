"""The content of alerts, in the format of Alertmanager's webhooks, version 4."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from exchangeable.rate import RateChange
from exchangeable.service.clock import format_time

ALERT_NAME, SEVERITY = "ExchangeabilityAlarm", "warning"
NOT_ENDED = "0001-01-01T00:00:00Z"  # how Alertmanager writes the end of an alert that is still firing

Status = Literal["firing", "resolved"]
STATUSES: tuple[Status, ...] = ("firing", "resolved")


class RiskDetails(NamedTuple):
    """The limit, and the mean loss of the test up to the alarm."""

    limit: float
    mean: float


class TableDetails(NamedTuple):
    """The columns and views of a table that have rejected: the strongest, and how many there are."""

    rejected_by: tuple[str, ...]
    rejected: int
    keep_from: int | None  # the first row after the latest change of any of them


class Details(NamedTuple):
    """The details of an alarm that an alert reports."""

    alarm: str  # its kind, such as "ville"
    guarantee: str
    alarm_at: int  # the example that raised it
    changepoint: int | None
    log10_martingale: float | None  # None if the capital is 0, as in JSON
    started: float | None = None  # unix time; None: now if firing, else the start of the newest firing alert
    reason: str = ""  # of the end: "reset", "restart", "deleted"
    change: RateChange | None = None  # if the rate is monitored
    risk: RiskDetails | None = None  # if the risk is monitored
    table: TableDetails | None = None  # if the stream is a table


def fingerprint(labels: Mapping[str, str]) -> str:
    """Return the identity of an alert: the same for equal labels, also after a restart.

    It is computed as in Prometheus: 64-bit FNV-1a over names and values in the order of the names, each followed by a
    byte 255.

    >>> fingerprint({})
    'cbf29ce484222325'
    """
    value = 0xCBF29CE484222325
    for key in sorted(labels):
        for byte in key.encode() + b"\xff" + labels[key].encode() + b"\xff":
            value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return f"{value:016x}"


def build_alert(stream: str, status: Status, details: Details, started: float, now: float) -> dict[str, Any]:
    """Return an alert as it is stored in the outbox.

    To the fields of Alertmanager it adds ``keep_from``, the first example after the estimated change (None if it is
    not known; for a table, after the latest change of its columns and views). For a table, ``rejected_by`` has at most
    20 of these, and ``rejected`` is how many there are.
    """
    labels = {"alertname": ALERT_NAME, "stream": stream, "alarm": details.alarm, "severity": SEVERITY}
    return {
        "status": status,
        "labels": labels,
        "annotations": _annotations(stream, status, details),
        "startsAt": format_time(started),
        "endsAt": format_time(now) if status == "resolved" else NOT_ENDED,
        "fingerprint": fingerprint(labels),
        "keep_from": None if details.changepoint is None else details.changepoint + 1,
        **({} if details.table is None else details.table._asdict()),
    }


def payload(alert: Mapping[str, Any], receiver: str, external_url: str = "") -> dict[str, Any]:
    """Return the message for one alert of the outbox: Alertmanager's webhook, version 4.

    Reference: https://prometheus.io/docs/alerting/latest/configuration/#webhook_config
    """
    labels, home = alert["labels"], external_url.rstrip("/")
    group = {"alertname": labels["alertname"], "stream": labels["stream"]}
    key = ", ".join(f'{name}="{value}"' for name, value in group.items())
    source = f"{home}/streams/{labels['stream']}" if home else ""
    return {
        "version": "4",
        "groupKey": f"{{}}:{{{key}}}",
        "truncatedAlerts": 0,
        "status": alert["status"],
        "receiver": receiver,
        "groupLabels": group,
        "commonLabels": labels,
        "commonAnnotations": alert["annotations"],
        "externalURL": home,
        "alerts": [{**alert, "generatorURL": source}],
    }


def _annotations(stream: str, status: Status, details: Details) -> dict[str, str]:
    capital = "-inf" if details.log10_martingale is None else f"{details.log10_martingale:.6g}"
    changepoint = "" if details.changepoint is None else str(details.changepoint)
    if status == "firing":
        summary = f"Stream {stream} is no longer exchangeable."
        text = f"The alarm was raised at example {details.alarm_at}, with a log10 capital of {capital}."
        if details.change is not None:
            value, before, after = details.change
            summary = f"The rate of stream {stream} has changed from {100.0 * before:.3g} % to {100.0 * after:.3g} %."
            text = (
                f"The alarm was raised at example {details.alarm_at}; the rate is the share of values from {value} on."
            )
        if details.risk is not None:
            limit, mean = details.risk
            summary = f"The mean loss of stream {stream} has exceeded the limit of {limit:g}."
            text = (
                f"The alarm was raised at example {details.alarm_at}; the mean loss of the test so far is {mean:.3g}."
            )
        if details.table is not None:
            summary = f"The rows of stream {stream} differ from its reference{_names(details.table)}."
        noun = "change" if details.risk is None else "rise"
        text += f" The {noun} seems to have started after example {changepoint}." * bool(changepoint)
    else:
        summary = text = f"Stream {stream}: the alarm is over" + f" ({details.reason})" * bool(details.reason) + "."
    return {
        "summary": summary,
        "description": f"{text} {details.guarantee}",
        "log10_martingale": capital,
        "alarm_at": str(details.alarm_at),
        "changepoint": changepoint,
    }


def _names(table: TableDetails) -> str:
    more = table.rejected - len(table.rejected_by)
    names = ", ".join(table.rejected_by) + f" and {more} more" * (more > 0)
    return f": {names}" if names else ""
