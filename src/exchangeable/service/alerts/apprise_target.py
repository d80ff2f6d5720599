"""Receivers reached through apprise: e-mail, Slack, Teams and Mattermost.

Apprise opens its own connections, so it runs in a process of its own (`apprise_process`), which connects only to
addresses that the operator allowed, and which is killed when its time is over.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from exchangeable._extras import check, needed
from exchangeable.service.alerts.delivery import Result
from exchangeable.service.alerts.webhook import Webhook, check_receiver

SCHEMES = ("mailto", "mailtos", "slack", "msteams", "workflow", "workflows", "mmost", "mmosts")
URL_RULE = f"url must be an address that apprise understands, beginning with one of {', '.join(SCHEMES)} and ://"
PURPOSE = "alerts by e-mail, Slack or Teams"


@dataclass(frozen=True)
class AppriseTarget:
    """A receiver of alerts that apprise knows. Its URL holds secrets, so no message contains it."""

    name: str
    url: str = field(repr=False)
    allow_private: bool = False  # whether its server may be on this machine or in a private network
    timeout: float = 30.0  # seconds for the complete delivery, with the start of its process

    def __post_init__(self) -> None:
        check_receiver(self.name, self.allow_private, self.timeout)
        check("alerts", PURPOSE)
        if not isinstance(self.url, str) or not self.url.isprintable() or not _is_valid_url(self.url):
            raise ValueError(URL_RULE)

    @property
    def scheme(self) -> str:
        """The first part of the URL, which is no secret."""
        return self.url.partition("://")[0].lower()


Receiver = Webhook | AppriseTarget


def _is_valid_url(url: str) -> bool:
    if url.partition("://")[0].lower() not in SCHEMES:
        return False
    logging.getLogger("apprise").disabled = True  # its messages contain URLs
    with needed("alerts", PURPOSE), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of modules that its plugins import
        import apprise

        return apprise.Apprise.instantiate(url, suppress_exceptions=True) is not None


async def notify(target: AppriseTarget, alert: Mapping[str, Any], source: str = "") -> Result:
    """Deliver one alert through apprise, as a title and a text, within the timeout."""
    notes = alert["annotations"]
    message = {
        "url": target.url,
        "allow_private": target.allow_private,
        "title": f"[{alert['status'].upper()}] {notes['summary']}",
        "body": notes["description"] + f"\n{source}" * bool(source),
        "kind": "warning" if alert["status"] == "firing" else "success",
    }
    try:
        async with asyncio.timeout(target.timeout):
            return _result(target, await _run(json.dumps(message).encode()))
    except TimeoutError:
        return Result(f"there was no answer within {target.timeout:g} s")
    except OSError as error:
        return Result(f"the process for apprise could not be started: {error.strerror}")


async def _run(message: bytes) -> bytes:
    """Run the process with a message as its input, and return its output; kill it if this is cancelled."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "exchangeable.service.alerts.apprise_process"),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,  # may contain secrets
        env={name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")},
    )
    try:
        output, _ = await process.communicate(message)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    return output


def _result(target: AppriseTarget, output: bytes) -> Result:
    try:
        reply = json.loads(output)
    except ValueError:
        return Result("the process for apprise ended without a result")
    if reply["refused"] is not None:
        rule = "the host must have public addresses only unless allow_private is set"
        return Result(f"the request failed: {rule}, got {reply['refused']}")
    return Result() if reply["delivered"] else Result(f"apprise could not deliver it by {target.scheme}")
