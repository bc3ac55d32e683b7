"""Errors as OpenAI's error object: a status, a sentence, and the field that was wrong."""

from __future__ import annotations

from typing import Any

from diffinity.errors import ConstraintSyntaxError, DiffinityError


class ApiError(Exception):
    """An error of the client, or a temporary failure of the server.

    >>> ApiError("n must be at least 1", param="n").body()["error"]["param"]
    'n'
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message, self.status, self.param, self.code, self.retry_after = (
            message,
            status,
            param,
            code,
            retry_after,
        )

    def body(self) -> dict[str, Any]:
        """The JSON error object of OpenAI's API."""
        error = {"message": self.message, "type": self._type(), "param": self.param, "code": self.code}
        return {"error": error}

    def headers(self) -> dict[str, str]:
        """The headers of the response."""
        return {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}

    def _type(self) -> str:
        kinds = {401: "authentication_error", 429: "rate_limit_error", 504: "timeout_error"}
        return kinds.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")


def of_diffinity(error: DiffinityError, param: str | None) -> ApiError:
    """A library error as an `ApiError`; it keeps the caret that marks the place.

    >>> from diffinity.errors import InvalidArgument
    >>> of_diffinity(InvalidArgument("steps must be at least 1, but is 0"), "diffinity").status
    400
    """
    code = "invalid_constraint" if isinstance(error, ConstraintSyntaxError) else _snake(type(error).__name__)
    message = str(error).split("Simplify the constraint, or raise the limit")[0].strip()  # clients can't raise it
    return ApiError(message, param=param, code=code)


def _snake(name: str) -> str:
    """
    >>> _snake("ConstraintTooLarge")
    'constraint_too_large'
    """
    return "".join("_" + c.lower() if c.isupper() else c for c in name).lstrip("_")
