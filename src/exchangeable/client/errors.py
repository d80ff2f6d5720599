"""Errors of the client, and which of them are worth another attempt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from httpx2 import Response

TRANSIENT_STATUSES = frozenset({429, 502, 503, 504, 507})  # overload, restart, a full disk
MAX_RETRY_AFTER = 300.0  # seconds, even if the server asks to wait longer


class ClientError(Exception):
    """The server rejected a request, or could not be reached.

    ``status`` is None if there was no response. ``code`` is the error code for programs, ``message`` a sentence for
    people, and ``body`` the full response. When raised by ``send`` or ``extend``, ``buffered`` is the number of
    observations of that call that are in the buffer already and must not be sent again.
    """

    def __init__(self, status: int | None, code: str, message: str, body: Mapping[str, Any] | None = None) -> None:
        super().__init__(message if status is None else f"{message} ({status} {code})")
        self.status = status
        self.code = code
        self.message = message
        self.body: dict[str, Any] = dict(body or {})
        self.buffered = 0

    def with_note(self, note: str) -> ClientError:
        """Return the same error with a longer message."""
        return ClientError(self.status, self.code, f"{self.message}{note}", self.body)


class TransientError(Exception):
    """A transient failure: the error to raise if retries do not help, and how long the server asks to wait."""

    def __init__(self, error: ClientError, retry_after: float = 0.0) -> None:
        super().__init__(str(error))
        self.error = error
        self.retry_after = retry_after


def error_from(response: Response) -> ClientError | TransientError:
    """Return the error that a response with an error status stands for."""
    try:
        body = dict(response.json())
        error = ClientError(response.status_code, str(body["error"]), str(body["message"]), body)
    except (ValueError, TypeError, KeyError):  # perhaps the page of a proxy
        error = ClientError(response.status_code, "http", f"the server answered {response.reason_phrase!r}")
    if response.status_code not in TRANSIENT_STATUSES:
        return error
    wait = response.headers.get("retry-after", "")
    return TransientError(error, min(float(wait), MAX_RETRY_AFTER) if wait.isascii() and wait.isdigit() else 0.0)
