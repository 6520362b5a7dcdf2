"""Which model names this server answers to."""

from ramet.ipc.params import shown
from ramet.runtime.errors import ClientError
from ramet.runtime.server.http.service import Service

ANY_MODEL = "default"  # what clients send that do not care


def check_model(service: Service, name: str | None) -> str:
    """The name to answer with. A client may leave it out; another model's name is a 404."""
    served = service.args.model_name
    if name not in (None, served, ANY_MODEL):
        raise ClientError(
            "model", f"is {shown(name)}, this server serves {served!r}", status=404, code="model_not_found"
        )
    return served
