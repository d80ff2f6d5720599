"""A receiver of alerts that starts a retraining job: the webhook of `exchangeable serve`, with the standard library.

The server delivers each alert at least once, so the same alert may arrive twice: a file for each alarm, which can be
created only once, makes sure that its job is started once. The reply is 200 once the job has been started; any other
reply makes the server try again. The job is your own command. Five arguments are added to it:

    stream          its name
    alarm_at        the example that raised the alarm
    changepoint     the number of examples before the estimated change; empty if it is not known
    keep_from       the first example after the change, from which to keep data; empty if it is not known
    columns         a JSON list of the columns and views that have changed, the strongest first; [] if it is no table

The job should itself decide what to do: check the pipeline, train on the rows after the change, compare with the model
in use, and ask a person before it is replaced (docs/after-an-alarm.md).

    export RETRAIN_TOKEN=...         # the token of the webhook, the same as in the server's settings
    python examples/retrain_on_alarm.py --port 9000 --jobs jobs -- python train.py

with these settings of the server:

    [[webhooks]]
    name = "retrain"
    url = "http://127.0.0.1:9000/"
    token_env = "RETRAIN_TOKEN"
    allow_private = true             # it is on this machine
"""

from __future__ import annotations

import argparse
import hmac
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

MAX_BODY = 1 << 20


def arguments(alert: dict[str, Any]) -> list[str]:
    """Return the arguments that are added to the command of the job."""
    notes, first = alert["annotations"], alert.get("keep_from")
    change = notes["changepoint"], "" if first is None else str(first)
    return [alert["labels"]["stream"], notes["alarm_at"], *change, json.dumps(alert.get("rejected_by", []))]


def start_job(alert: dict[str, Any], jobs: Path, command: list[str]) -> bool:
    """Start the job of an alarm; return False if it has been started before."""
    more = arguments(alert)
    name = f"{alert['fingerprint']}-{alert['startsAt'].replace(':', '')}.json"  # the same for each delivery of an alarm
    if not all(isinstance(one, str) and "\0" not in one for one in (name, *more)) or Path(name).name != name:
        raise ValueError("not an alert of the server")
    record = jobs / name
    try:
        file = record.open("x")
    except FileExistsError:
        return False
    try:
        with file:
            json.dump(alert, file)
        subprocess.Popen([*command, *more])  # noqa: S603
    except OSError:
        record.unlink()  # so that the next delivery tries again
        raise
    return True


class Receiver(BaseHTTPRequestHandler):
    """Answers the server's requests."""

    jobs: Path
    job: list[str]
    token: str
    timeout = 10

    def do_POST(self) -> None:
        """Take one message."""
        given = self.headers.get("Authorization", "").encode("latin-1", "replace")
        if not hmac.compare_digest(given, f"Bearer {self.token}".encode()):
            return self.reply(401)
        length = self.headers.get("Content-Length", "")
        if not (length.isascii() and length.isdigit()):
            return self.reply(411)
        if len(length) > 9 or int(length) > MAX_BODY:
            return self.reply(413)
        try:
            alerts = json.loads(self.rfile.read(int(length)))["alerts"]
            for alert in alerts:
                if alert["status"] == "firing" and start_job(alert, self.jobs, self.job):
                    print(f"started the job for {alert['labels']['stream']}", flush=True)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            return self.reply(400)  # no other attempt can help
        except OSError as error:
            print(f"the job could not be started: {error}", file=sys.stderr, flush=True)
            return self.reply(503)  # the server tries again later
        return self.reply(200)

    def reply(self, status: int) -> None:
        """Send a reply without a body."""
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Log nothing: a request line may contain secrets."""


def main() -> None:
    """Receive alerts until interrupted."""
    parser = argparse.ArgumentParser(description="Start a job for each alarm.")
    parser.add_argument("--port", type=int, default=9000)
    parser.add_argument("--jobs", type=Path, default=Path("jobs"), help="folder with one file for each alarm")
    parser.add_argument("command", nargs="+", help="the job; five arguments are added to it (see this file)")
    options = parser.parse_args()
    options.jobs.mkdir(exist_ok=True)
    Receiver.jobs, Receiver.job, Receiver.token = options.jobs, options.command, os.environ["RETRAIN_TOKEN"]
    with ThreadingHTTPServer(("127.0.0.1", options.port), Receiver) as server:
        print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
