"""GET /v1/models and /v1/models/{id}."""

from datetime import UTC, datetime

from aiohttp import web

from ramet.runtime.server.http.exchange import respond
from ramet.runtime.server.http.service import Service, unknown_model
from ramet.runtime.server.openai.replies import ModelCard, ModelList


async def models(service: Service, request: web.Request) -> web.Response:
    """The served model, as a list of one."""
    card = _card(service)
    return respond(ModelList(data=[card], first_id=card.id, last_id=card.id))


async def model(service: Service, request: web.Request, name: str) -> web.Response:
    """The served model; 404 for another name."""
    # paths lose their doubled and leading slashes on the way, so names are compared without them
    served = service.args.model_name
    if _plain(name) != _plain(served):
        raise unknown_model(name, served)
    return respond(_card(service))


def _card(service: Service) -> ModelCard:
    name = service.args.model_name
    return ModelCard(
        id=name,
        created=service.started,
        root=name,
        max_model_len=service.client.limits.context_length,
        display_name=name,
        created_at=datetime.fromtimestamp(service.started, UTC).isoformat().replace("+00:00", "Z"),
    )


def _plain(name: str) -> str:
    return "/".join(part for part in name.split("/") if part)
