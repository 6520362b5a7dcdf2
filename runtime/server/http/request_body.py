"""The body of an HTTP request, as a JSON object or as an endpoint's struct."""

from typing import Any, TypeVar

from aiohttp import web
from msgspec import Struct

from ramet.runtime.errors import ClientError
from ramet.runtime.intake.body import convert, parse_object

T = TypeVar("T", bound=Struct)


async def read_object(request: web.Request) -> dict[str, Any]:
    """The body as a JSON object. Raises ClientError: 413 if it is too large, else 400."""
    try:
        data = await request.read()
    except web.HTTPRequestEntityTooLarge as error:
        raise ClientError("body", "is larger than the server accepts", "--max-body-mb", 413) from error
    except web.RequestPayloadError as error:
        raise ClientError("body", f"cannot be read: {' '.join(str(error).split())}") from error
    return parse_object(data)


async def read_body(request: web.Request, type_: type[T]) -> T:
    """As `read_object`; a field of the wrong type is a ClientError as well."""
    return convert(await read_object(request), type_)
