"""The command line: parse, call, print; a file for each command.

Exit codes: 0 not rejected, 1 rejected, 2 wrong usage, 3 could not decide (bad or too little data, input or output).
"""

from __future__ import annotations

from exchangeable.cli import alert, certify, demo, fetch, fleet, reproduce, serve, shift, spark, test, token, watch
from exchangeable.cli.choice import READINGS, Choice
from exchangeable.cli.program import app, flowed, main
from exchangeable.results.verdict import NAMED, SHIFTS, Verdict, capital, words

__all__ = ["NAMED", "READINGS", "SHIFTS", "Choice", "Verdict", "app", "capital", "main", "words"]

for _command in (
    demo.demo,
    test.test,
    watch.watch,
    serve.serve,
    shift.shift,
    fleet.fleet,
    certify.certify,
    fetch.fetch,
    reproduce.reproduce,
):
    app.command(help=flowed(_command.__doc__))(_command)
app.add_typer(token.commands, name="token")
app.add_typer(alert.commands, name="alert")
app.add_typer(spark.commands, name="spark")
