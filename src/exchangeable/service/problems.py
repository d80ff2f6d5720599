"""Rejected requests: an HTTP status, a code for programs, and a sentence for people."""

from __future__ import annotations

from typing import Any


class Problem(Exception):  # noqa: N818 - the client's error, not ours
    """The reply to a request that is rejected.

    >>> Problem(409, "gap", "seq must be 5, got 9", expected_seq=5).body
    {'error': 'gap', 'message': 'seq must be 5, got 9', 'expected_seq': 5}
    """

    def __init__(self, status: int, code: str, message: str, **extra: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.extra = extra

    @property
    def body(self) -> dict[str, Any]:
        """The reply as a JSON object."""
        return {"error": self.code, "message": self.message, **self.extra}


def out_of_memory() -> Problem:
    """Return the reply to a request that needs more memory than there is."""
    message = "the server does not have enough memory for this request: nothing was accepted; send less at a time"
    return Problem(503, "out-of-memory", message, retry_after=5)


def invalid(error: Exception, code: str, message: str, status: int = 422) -> Problem:
    """Return the reply to a request that failed with this error; a lack of memory says nothing about the request."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, MemoryError):
            return out_of_memory()
        cause = cause.__cause__ or cause.__context__
    return Problem(status, code, message)
