"""Where the references of a schema lead: to a schema inside it, and to an end."""

from typing import Any
from urllib.parse import unquote

from ramet.ipc.params import quoted
from ramet.runtime.grammar.base import GrammarError

Schema = bool | dict[str, Any]
IN_PLACE = ("anyOf", "oneOf", "allOf")


def check(places: dict[str, Schema]) -> dict[str, Schema]:
    """What each reference leads to. Raises GrammarError where that is nowhere, a circle, or what nothing finite is."""
    targets = {place: target_of(place, schema, places) for place, schema in places.items() if has_ref(schema)}
    refuse_circles(places, targets)
    Endings(places, targets).check()
    return {ref_of(places[place]): places[target] for place, target in targets.items()}


def has_ref(schema: Schema) -> bool:
    return isinstance(schema, dict) and "$ref" in schema


def ref_of(schema: Schema) -> str:
    assert isinstance(schema, dict)
    return str(schema["$ref"])


def target_of(place: str, schema: Schema, places: dict[str, Schema]) -> str:
    ref = ref_of(schema)
    if not ref.startswith("#"):
        raise GrammarError(f"{place}/$ref leads to {quoted(ref)}, must begin with #: nothing is fetched")
    target = f"#{unquote(ref[1:])}"
    if target not in places:
        raise GrammarError(f"{place}/$ref leads to {quoted(ref)}, where there is no schema")
    return target


def refuse_circles(places: dict[str, Schema], targets: dict[str, str]) -> None:
    """References that come back to themselves before any part of a value is read."""
    state: dict[str, bool] = {}  # True: being looked at
    for start in targets:
        stack = [(start, iter(same_value(start, places, targets)))]
        state.setdefault(start, True)
        while stack:
            place, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                state[place] = False
                stack.pop()
            elif state.get(following) is True and any(following == p for p, _ in stack):
                raise GrammarError(f"{place}: its $ref runs in a circle")
            elif following not in state:
                state[following] = True
                stack.append((following, iter(same_value(following, places, targets))))


def same_value(place: str, places: dict[str, Schema], targets: dict[str, str]) -> list[str]:
    """The places of the schemas that the same value must keep to."""
    schema = places[place]
    if not isinstance(schema, dict):
        return []
    found = [f"{place}/{keyword}/{i}" for keyword in IN_PLACE for i in range(len(schema.get(keyword, ())))]
    return [p for p in found if p in places] + ([targets[place]] if place in targets else [])


class Endings:
    """Which schemas some finite text keeps to, as far as required parts decide it: the least fixed point."""

    def __init__(self, places: dict[str, Schema], targets: dict[str, str]) -> None:
        self.places, self.targets = places, targets
        self.ends: set[str] = set()

    def check(self) -> None:
        grown = True
        while grown:
            before = len(self.ends)
            self.ends.update(place for place in reversed(self.places) if self.can_end(place))
            grown = len(self.ends) > before
        endless = [place for place in [*self.targets.values(), "#"] if place not in self.ends]
        if endless and self.places[endless[0]] is not False:
            raise GrammarError(f"{endless[0]}: nothing finite is valid here")

    def can_end(self, place: str) -> bool:
        schema = self.places[place]
        if isinstance(schema, bool):
            return schema
        if place in self.targets and self.targets[place] not in self.ends:
            return False
        for keyword in ("anyOf", "oneOf"):
            options = range(len(schema.get(keyword, ())))
            if options and not any(self.known(f"{place}/{keyword}/{i}") for i in options):
                return False
        if not all(self.known(f"{place}/allOf/{i}") for i in range(len(schema.get("allOf", ())))):
            return False
        return self.some_type_can_end(place, schema)

    def known(self, place: str) -> bool:
        return place not in self.places or place in self.ends

    def some_type_can_end(self, place: str, schema: dict[str, Any]) -> bool:
        types = schema.get("type", ["null"])
        types = [types] if isinstance(types, str) else types
        if "const" in schema or "enum" in schema:
            return True
        return any(self.type_can_end(place, schema, name) for name in types)

    def type_can_end(self, place: str, schema: dict[str, Any], name: str) -> bool:
        if name == "object":
            required = [n for n in schema.get("required", ()) if n in schema.get("properties", ())]
            parts = [f"{place}/properties/{n.replace('~', '~0').replace('/', '~1')}" for n in required]
        elif name == "array":
            num_items = schema.get("minItems", 0)
            num_first = len(schema.get("prefixItems", ()))
            parts = [f"{place}/prefixItems/{i}" for i in range(min(num_items, num_first))]
            parts += [f"{place}/items"] if num_items > num_first else []
        else:
            return True
        return all(self.known(part) for part in parts)
