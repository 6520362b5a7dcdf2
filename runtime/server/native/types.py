"""The body of /generate. Only its shape: prompts are read in generate.py."""

from typing import Annotated, Any

from msgspec import Meta

from ramet.ipc.params import about
from ramet.runtime.intake.fields import RID, Ids, OrEach, PromptId, Text, unbuilt
from ramet.runtime.intake.limits import MAX_EMBED
from ramet.runtime.intake.specs import SpecLists

Embed = Annotated[float, Meta(ge=-MAX_EMBED, le=MAX_EMBED)]
Media = str | dict[str, Any] | list[Any] | None


class GenerateBody(SpecLists, frozen=True, kw_only=True):
    """Every field this endpoint knows. A list gives one value per prompt."""

    text: Annotated[Text | Annotated[list[Text], Meta(min_length=1)] | None, about("a prompt, or a list of them")] = (
        None
    )
    input_ids: Annotated[
        Annotated[list[PromptId | Ids], Meta(min_length=1)] | None, about("a prompt as token ids, or a list of such")
    ] = None
    input_embeds: Annotated[
        Annotated[list[list[Embed | list[Embed]]], Meta(min_length=1)] | None,
        about("a prompt as rows of hidden_size numbers, or a list of such; it shares the cache with equal ones only"),
    ] = None
    rid: Annotated[
        str | list[str] | None,
        about(
            "name of the request, for /abort_request; a new one if it is absent", pattern=RID, items={"pattern": RID}
        ),
    ] = None
    stream: Annotated[bool | None, about("server-sent events as tokens come")] = None
    image_data: Annotated[Media, unbuilt("pictures", neutral=("",))] = None
    audio_data: Annotated[Media, unbuilt("sound", neutral=("",))] = None
    video_data: Annotated[Media, unbuilt("films", neutral=("",))] = None
    lora_path: Annotated[OrEach[str], unbuilt("an adapter", neutral=("",))] = None
    return_routed_experts: Annotated[
        bool | None, unbuilt("which experts each token went through", neutral=(False,))
    ] = None
    routed_experts_start_len: Annotated[int | None, unbuilt("from which token on", neutral=(0,))] = None
    session_params: Annotated[OrEach[dict[str, Any]], unbuilt("a session", neutral=({},))] = None
    grammar_backend: Annotated[str | None, unbuilt("which library keeps the output to its constraint")] = None
    token_healing: Annotated[bool | None, unbuilt("the prompt's last token is drawn again", neutral=(False,))] = None
