"""The words of the language: gen, select, roles, media. Each makes a node, which `s += ...` appends to a prompt.

Arguments are checked here, where the user's line is at hand. None means that the run's default stands.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ramet.frontend.choices import check_method, token_length_normalized
from ramet.frontend.ir import (
    SELECT_OPTIONS,
    Begin,
    Concat,
    ConstantText,
    End,
    Expr,
    Gen,
    Held,
    Media,
    Select,
    Variable,
    Where,
    as_expr,
    caller,
    check_known,
)
from ramet.frontend.media import source_of
from ramet.frontend.options import OPTION_CHECKS, checked_options
from ramet.frontend.values import Wanted, wanted_dtype, wanted_schema
from ramet.ipc.errors import ClientError
from ramet.ipc.params import CHECKS, MAX_STOPS, check_lengths

MEDIA_OPTIONS = {"num_frames": "video", "sample_rate": "audio"}  # the latter of samples that only a run knows
OPTIONS = tuple(OPTION_CHECKS)  # fields of a request that are no sampling parameters
TYPED = (  # parameters of gen_int and gen_string behind the name, in order
    "max_tokens", "n", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
    "frequency_penalty", "presence_penalty", "ignore_eos", "return_logprob", "logprob_start_len", "top_logprobs_num",
    "return_text_in_logprobs",
)  # fmt: skip
SHORT = {"max_tokens": "max_new_tokens", "min_tokens": "min_new_tokens", "seed": "sampling_seed"}


def checked_sampling(given: Mapping[str, Any]) -> dict[str, Any]:
    """Sampling parameters that are not None, by the names of ipc/params.py. Raises ClientError."""
    sampling = {name: CHECKS[name].read(name, value) for name, value in given.items() if value is not None}
    if "min_new_tokens" in sampling and "max_new_tokens" in sampling:
        check_lengths("min_new_tokens", sampling["min_new_tokens"], sampling["max_new_tokens"])
    return sampling


def gen(
    name: str | None = None,
    max_tokens: int | None = None,
    min_tokens: int | None = None,
    n: int | None = None,
    stop: str | Sequence[str] | None = None,
    stop_token_ids: Sequence[int] | None = None,
    stop_regex: str | Sequence[str] | None = None,
    temperature: float | None = None,
    top_p: float | None = None,
    top_k: int | None = None,
    min_p: float | None = None,
    frequency_penalty: float | None = None,
    presence_penalty: float | None = None,
    ignore_eos: bool | None = None,
    return_logprob: bool | None = None,
    logprob_start_len: int | None = None,
    top_logprobs_num: int | None = None,
    return_text_in_logprobs: bool | None = None,
    dtype: Any = None,
    choices: Iterable[str] | None = None,
    choices_method: Any = None,
    regex: str | None = None,
    json_schema: Any = None,
    *,
    ebnf: str | None = None,
    structural_tag: str | Mapping[str, Any] | None = None,
    typical_p: float | None = None,
    repetition_penalty: float | None = None,
    logit_bias: Mapping[Any, float] | None = None,
    seed: int | None = None,
    max_new_tokens: int | None = None,
    min_new_tokens: int | None = None,
    skip_special_tokens: bool | None = None,
    spaces_between_special_tokens: bool | None = None,
    no_stop_trim: bool | None = None,
    custom_params: Mapping[str, Any] | None = None,
    token_ids_logprob: Sequence[int] | None = None,
    priority: int | None = None,
    cache_salt: str | None = None,
    extra_key: str | None = None,
    custom_logit_processor: str | None = None,
    return_hidden_states: Any = None,
    grammar_backend: str | None = None,
    token_healing: bool | None = None,
) -> Expr:
    """A call of the model: its text is appended, and s[name] is its value.

    The value is the text; with `n` a list of n texts, of which the first is appended; with `dtype` an int, float, bool
    or str (JSON's, in quotes); with a type as `json_schema` an instance of it; with `choices` what `select` picks,
    which reads of the other arguments only its own.
    Sampling parameters are those of docs/sampling.md (`max_tokens` is `max_new_tokens`). Raises ClientError for a value
    out of range, and ValueError where two constraints are given.
    """
    check_known(locals())
    given = {name: value for name, value in locals().items() if name in CHECKS or name in OPTIONS or name in SHORT}
    where = caller()
    _check_name(name)
    if choices is not None:
        _only("choices", dtype=dtype, regex=regex, json_schema=json_schema, ebnf=ebnf, structural_tag=structural_tag)
        return _select(name, choices, choices_method, given, where)
    if choices_method is not None:
        raise ValueError("choices_method is given, but choices are not")
    wanted = _wanted(dtype, regex, json_schema, ebnf, structural_tag)
    sampling, options = split(given)
    if wanted is None:
        return Gen(name, where, sampling, options)
    if wanted.stops:
        sampling["stop"] = tuple(dict.fromkeys((*sampling.get("stop", ()), *wanted.stops)))[:MAX_STOPS]
    return Gen(name, where, sampling, options, wanted.held, wanted.read, wanted.kind)


def gen_int(name: str | None = None, *values: Any, **arguments: Any) -> Expr:
    """gen(dtype=int). `values`: max_tokens and what follows it in gen, but min_tokens, as SGLang's programs have it."""
    return _typed("gen_int", int, name, values, arguments)


def gen_string(name: str | None = None, *values: Any, **arguments: Any) -> Expr:
    """gen(dtype=str). `values`: as those of gen_int."""
    return _typed("gen_string", str, name, values, arguments)


def _typed(function: str, dtype: type, name: str | None, values: Sequence[Any], arguments: Mapping[str, Any]) -> Expr:
    """Raises TypeError."""
    if len(values) > len(TYPED):
        raise TypeError(
            f"{function}() takes at most {1 + len(TYPED)} values without a name, and here are {1 + len(values)}"
        )
    given = dict(zip(TYPED, values, strict=False))
    if twice := given.keys() & arguments.keys():
        raise TypeError(f"{function}() has {min(twice)!r} twice")
    return gen(name, dtype=dtype, **given, **arguments)


def select(
    name: str | None = None,
    choices: Iterable[str] | None = None,
    temperature: float = 0.0,
    choices_method: Any = token_length_normalized,
    *,
    seed: int | None = None,
    priority: int | None = None,
    cache_salt: str | None = None,
    extra_key: str | None = None,
    token_healing: bool | None = None,
) -> Expr:
    """The choice that the model finds most probable is appended, and s[name] is its text.

    `choices_method`: how probabilities of tokens become one number (choices.py). temperature > 0 draws a choice by the
    probabilities of the choices. s.get_meta_info(name) has the scores. Raises ValueError.
    """
    check_known(locals())
    given = {"temperature": temperature, "seed": seed, "priority": priority, "cache_salt": cache_salt}
    given |= {"extra_key": extra_key, "token_healing": token_healing}
    _check_name(name)
    return _select(name, choices, choices_method, given, caller())


def _check_name(name: Any) -> None:
    if name is not None and (not isinstance(name, str) or not name):
        raise ValueError(f"name is {name!r}, must be a text that is not empty")


def split(given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Sampling parameters, and other fields of a request; what is None is left out. Raises ClientError."""
    check_known(given)
    renamed, names = dict[str, Any](), dict[str, str]()
    for name, value in given.items():
        long = SHORT.get(name, name)
        if value is None:
            continue
        if long in names:
            raise ClientError(name, f"and {names[long]} are both given: they are one parameter")
        renamed[long], names[long] = value, name
    sampling = checked_sampling({name: value for name, value in renamed.items() if name in CHECKS})
    return sampling, checked_options({name: value for name, value in renamed.items() if name in OPTIONS})


def _select(name: str | None, choices: Any, method: Any, given: Mapping[str, Any], where: Where) -> Select:
    texts = choices if isinstance(choices, str) or not isinstance(choices, Iterable) else tuple(choices)
    if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"choices are {texts!r}, must be a list of texts")
    if not texts or "" in texts or len(set(texts)) < len(texts):
        raise ValueError(f"choices are {texts!r}, must be at least one text, none of them empty or twice")
    sampling, others = split(given)
    if sampling.get("n", 1) > 1:
        raise ValueError(f"n is {sampling['n']}, but a select has one choice")
    options = {key: value for key, value in (sampling | others).items() if key in SELECT_OPTIONS}
    chosen = check_method(token_length_normalized if method is None else method)
    return Select(name, where, texts, chosen, sampling.get("temperature", 0.0), options)


def _wanted(dtype: Any, regex: Any, json_schema: Any, ebnf: Any, structural_tag: Any) -> Wanted | None:
    """What an output keeps to. Raises ValueError."""
    _only("", dtype=dtype, regex=regex, json_schema=json_schema, ebnf=ebnf, structural_tag=structural_tag)
    if dtype is not None:
        return wanted_dtype(dtype)
    if json_schema is not None:
        return wanted_schema(json_schema)
    for kind, value in (("regex", regex), ("ebnf", ebnf), ("structural_tag", structural_tag)):
        if value is not None:
            return Wanted(Held(kind, _checked_form(kind, value)))
    return None


def _checked_form(kind: str, value: Any) -> Any:
    """What it says is read by the backend: engines differ in the patterns and grammars that they take."""
    objects = kind == "structural_tag"
    if not isinstance(value, str) and not (objects and isinstance(value, Mapping)):
        raise ValueError(f"{kind} is {value!r}, must be a text" + (" or an object" if objects else ""))
    return value


def _only(beside: str, **constraints: Any) -> None:
    given = [*([beside] if beside else []), *(name for name, value in constraints.items() if value is not None)]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} are given, but an output keeps to one constraint only")


# -- turns of a chat ---------------------------------------------------------------------------------------------------


def _role(role: str, expr: Any) -> Expr:
    where = caller()
    return Begin(role, where) + ("" if expr is None else expr) + End(role, where)


def system(expr: Any = None) -> Expr:
    """A turn of the system, whole."""
    return _role("system", expr)


def user(expr: Any = None) -> Expr:
    return _role("user", expr)


def assistant(expr: Any = None) -> Expr:
    return _role("assistant", expr)


def tool(expr: Any = None) -> Expr:
    """The result of a tool's call."""
    return _role("tool", expr)


def system_begin() -> Expr:
    return Begin("system", caller())


def system_end() -> Expr:
    return End("system", caller())


def user_begin() -> Expr:
    return Begin("user", caller())


def user_end() -> Expr:
    return End("user", caller())


def assistant_begin() -> Expr:
    return Begin("assistant", caller())


def assistant_end() -> Expr:
    return End("assistant", caller())


def tool_begin() -> Expr:
    return Begin("tool", caller())


def tool_end() -> Expr:
    return End("tool", caller())


# -- texts, media and thoughts -----------------------------------------------------------------------------------------


def movable(text: str) -> Expr:
    """A constant text whose place does not matter: a compiled program puts it before its arguments."""
    if not isinstance(text, str):
        raise TypeError(f"movable() takes a text, not {type(text).__name__}")
    return ConstantText(text, movable=True)


def image(source: Any) -> Expr:
    """A picture: a path, a URL, bytes, an image of Pillow, or an array [height, width, 3] of uint8.

    Raises TypeError and ValueError for what is none.
    """
    return Media("image", _source("image", source), caller(), {})


def video(source: Any, num_frames: int | None = None) -> Expr:
    """A film, of which `num_frames` are looked at: a path, a URL or bytes. Raises TypeError and ValueError."""
    check_known({"num_frames": num_frames})
    return Media("video", _source("video", source), caller(), media_options("video", num_frames=num_frames))


def audio(source: Any, sample_rate: int | None = None) -> Expr:
    """A sound: a path, a URL, bytes, or an array of samples, `sample_rate` a second. Raises as image()."""
    check_known({"sample_rate": sample_rate})
    if isinstance(source, Variable):
        return Media("audio", _source("audio", source), caller(), media_options("audio", sample_rate=sample_rate))
    return Media("audio", source_of("audio", source, sample_rate), caller(), {})


def _source(kind: str, source: Any) -> Any:
    """Of a function that is traced it may be an argument, which the trace looks at."""
    return source if isinstance(source, Variable) else source_of(kind, source)


def media_options(kind: str, **given: Any) -> dict[str, Any]:
    """Those that are there. Raises ValueError."""
    options = {name: value for name, value in given.items() if value is not None}
    for name, value in options.items():
        if MEDIA_OPTIONS.get(name) != kind:
            raise ValueError(f"{name} is not a parameter of {kind}()")
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} is {value!r}, must be an integer >= 1")
    return options


def separate_reasoning(expr: Any, model_type: str | None = None) -> Expr:
    """Of each gen in `expr` the thought is kept apart: s[name] is the answer, s["NAME_reasoning_content"] the thought.

    Only the answer stays in the prompt. `model_type`: the name of a reasoning parser; None: the backend's own.
    """
    leaves = as_expr(expr).leaves()
    return Concat(tuple(replace(leaf, thoughts=model_type or "") if isinstance(leaf, Gen) else leaf for leaf in leaves))
