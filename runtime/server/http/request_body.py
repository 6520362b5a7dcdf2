"""The body of an HTTP request as a JSON object. What is in it is read in runtime/intake."""

from typing import Any

from aiohttp import web

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import parse_object


async def read_object(request: web.Request) -> dict[str, Any]:
    """The body as a JSON object. Raises ClientError: 413 if it is too large, else 400."""
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ClientError("body", "is larger than the server accepts", "--max-body-mb", 413) from error
    except web.RequestPayloadError as error:
        raise ClientError("body", f"cannot be read: {' '.join(str(error).split())}") from error
    return parse_object(data)
