"""POST /v1/score: how likely each of a few tokens comes next. What a score is, intake/scores.py says."""

from aiohttp import web

from ramet.runtime.engine_client.submission import check_numbers
from ramet.runtime.intake import prompts
from ramet.runtime.intake.scores import label_scores, read_pairs
from ramet.runtime.server.http.exchange import read_body, respond, set_request_id
from ramet.runtime.server.http.model_names import check_model
from ramet.runtime.server.http.service import Service
from ramet.runtime.server.openai.pooling_types import ScoreBody
from ramet.runtime.server.openai.replies import ScoreReply, usage_of


async def score(service: Service, request: web.Request) -> web.Response:
    """The probability of each label token after query and item, for each item."""
    body = await read_body(request, ScoreBody)
    model = check_model(service, body.model)
    rid = set_request_id(request, f"score-{prompts.new_id()}", None)
    vocab_size = service.client.limits.vocab_size
    items = read_pairs(rid, body, vocab_size)
    check_numbers("items", len(items), len(body.label_token_ids) + 1)
    with service.client.open(streaming=False) as submission:
        done = await service.client.run_in_turn(items, submission)
    scores = [label_scores(body, sequence.logprobs) for sequence in done]
    return respond(ScoreReply(model=model, scores=scores, usage=usage_of(done)))
