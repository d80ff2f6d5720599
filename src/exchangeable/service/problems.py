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
