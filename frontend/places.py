"""Which node may stand where in a prompt, which is decided before anything of the user's line is sent.

Knows the backend's capabilities, the run's parameters and the turn that is open, no stream and no variable.
"""

from collections.abc import Container
from dataclasses import replace

from ramet.frontend.backends.base import PromptPlace
from ramet.frontend.errors import ProgramError
from ramet.frontend.ir import Begin, ConstantText, End, Expr, Gen, Media, ScopeBegin, ScopeEnd, Select, Variable
from ramet.frontend.run import Run
from ramet.frontend.speculation import may_speculate


def after(leaf: Expr, place: PromptPlace, run: Run, scopes: Container[str]) -> PromptPlace:
    """Where a prompt stands when a node is appended at `place`. `scopes`: that are open.

    Raises TypeError for what cannot be appended, Unsupported for what the backend cannot do, and ProgramError for turns
    and scopes that do not fit.
    """
    backend = run.backend
    match leaf:
        case ConstantText(""):
            return place
        case ConstantText(text):
            outside = place.role == "" and text.strip() != ""
            return place._replace(text_outside=place.text_outside or outside, turn_has_text=place.role != "")
        case Gen():
            _check_gen(leaf, place, run)
        case Select():
            backend.check_select(replace(leaf, options=run.settings.of_select(leaf)), place)
        case Begin(role):
            if place.role:
                raise ProgramError(f"{role}: the turn of {place.role} has not ended, and turns do not nest")
            backend.check_turn(leaf)
            return place._replace(role=role, has_turns=True, turn_has_text=False)
        case End(role):
            if place.role != role:
                now = f"the turn is of {place.role}" if place.role else "no turn has begun"
                raise ProgramError(f"{role}_end: {now}")
            return place._replace(role="", turn_has_text=False)
        case Media():
            backend.check_media(leaf, place)
            return place
        case ScopeBegin(name) if name in scopes:
            raise ProgramError(f"var_scope({name!r}) stands inside itself: a scope needs a name of its own")
        case ScopeBegin() | ScopeEnd():
            return place
        case Variable():
            pass
        case _:
            raise TypeError(f"{type(leaf).__name__} cannot be appended")
    return place._replace(turn_has_text=place.role != "")


def _check_gen(node: Gen, place: PromptPlace, run: Run) -> None:
    settings = run.settings
    sampling = {**settings.sampling, **node.sampling}
    asked = replace(node, options={**settings.options, **node.options})
    if settings.spec_tokens and may_speculate(asked, sampling):  # a whole turn is asked for
        place = place._replace(turn_has_text=False)
    run.backend.check_gen(asked, sampling, place)
