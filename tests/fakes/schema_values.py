"""Values that a JSON schema of /openapi.json allows, drawn by a seeded Random.

Decides what is likely: short texts with the words that chat templates and parsers look for, small numbers, few entries.
Knows the keywords that this server's schemas use, and fails at any other.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import Any

WORDS = (
    "hello", "What is 17 + 25?", "a", " ", "\n", "", "Ünï", "🙂", "日本語", "yes", "no", "\x00", "\u2028", '{"a": 1}',
    "</s>",    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<tool_call>", "</tool_call>", "<think>", "</think>",
    "[TOOL_CALLS]",
    '<tool_call>\n{"name": "look", "arguments": {"x": 1}}\n</tool_call>', "{{ messages }}", "{% for %}",
    "data: [DONE]\n",
)  # fmt: skip
NAMES = ("look", "get_weather", "a.b:c/d-e_1", "x" * 128, "image/png")
NUMBERS = ("5", "-100", "0.5", "1e2", "+7")
TOOL_SCHEMAS: tuple[Any, ...] = (
    {}, {"type": "object", "properties": {}}, {"type": "object", "properties": {"x": {"type": "integer"}}},
    {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}}, {"type": ["object", "null"], "properties": None},
    {"type": "object", "properties": {"日": {"enum": [1, None, "x"]}, "y": True}, "required": "x"},
    {"properties": ["x"]}, {"type": 5}, {"properties": {"x": None, "y": 5, "z": {"type": "array", "items": []}}},
)  # fmt: skip
FLOATS = (0.0, 0.5, 1.0, 0.7, 1e-9, 1.5)
KNOWN = {
    "$ref", "anyOf", "enum", "const", "type", "properties", "required", "patternProperties", "additionalProperties",
    "items", "minItems", "maxItems", "maxProperties", "pattern", "minLength", "maxLength", "minimum", "maximum",
    "exclusiveMinimum", "default", "description", "title", "examples", "x-unbuilt",
    "discriminator", "not",
}  # fmt: skip


class SchemaValues:
    """`components`: the schemas that references name."""

    def __init__(self, components: Mapping[str, Any], draw: Random) -> None:
        self._components, self._draw = components, draw

    def value(self, schema: Mapping[str, Any], depth: int = 0) -> Any:
        assert schema.keys() <= KNOWN, f"unknown keywords {schema.keys() - KNOWN}"
        draw = self._draw
        if "$ref" in schema:
            beside = {key: item for key, item in schema.items() if key != "$ref"}
            return self.value(self._merged(beside, self.resolved(schema)), depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "anyOf" in schema:
            beside = {
                key: item
                for key, item in schema.items()
                if key not in ("anyOf", "default", "description", "title", "discriminator")
            }
            return self.value(self._merged(beside, self._likely(schema["anyOf"])), depth)
        kind = schema.get("type")
        match draw.choice(kind) if isinstance(kind, list) else kind:
            case "object":
                return self._object(schema, depth)
            case "array":
                return self._array(schema, depth)
            case "string":
                return self._string(schema)
            case "integer":
                return self._integer(schema)
            case "number":
                low = schema.get("minimum", schema.get("exclusiveMinimum", 0) + 1e-3)
                return min(max(draw.choice(FLOATS), low), schema.get("maximum", 2.0))
            case "boolean":
                return draw.random() < 0.5
            case "null":
                return None
        return self.anything(depth)

    def resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self._components[schema["$ref"].rsplit("/", 1)[1]]
        return found

    def _merged(self, beside: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
        """What two schemas say of one value; where both name a keyword, that of the first one counts."""
        if "$ref" in schema:
            schema = self.resolved(schema)
        merged = {**schema, **beside}
        if "items" in schema and "items" in beside:
            merged["items"] = self._merged(beside["items"], schema["items"])
        if "properties" in schema and "properties" in beside:
            merged["properties"] = {**schema["properties"], **beside["properties"]}
        if "required" in schema and "required" in beside:
            merged["required"] = [*beside["required"], *schema["required"]]
        return merged

    def text(self) -> str:
        draw = self._draw
        return "".join(draw.choice(WORDS) for _ in range(draw.choice((1, 1, 1, 2, 5))))

    def anything(self, depth: int = 0) -> Any:
        draw = self._draw
        if depth < 3 and draw.random() < 0.3:
            items = [self.anything(depth + 1) for _ in range(draw.randint(0, 2))]
            return items if draw.random() < 0.5 else {draw.choice(WORDS): item for item in items}
        return draw.choice((None, True, 1, 0.5, self.text()))

    def _likely(self, choices: list[Mapping[str, Any]]) -> Mapping[str, Any]:
        """null is rarely worth a body, and neither is what is refused until it is built."""
        real = [choice for choice in choices if choice.get("type") != "null" and "x-unbuilt" not in choice]
        return self._draw.choice(real) if real and self._draw.random() < 0.9 else self._draw.choice(choices)

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        draw, required = self._draw, schema.get("required", ())
        properties: Mapping[str, Any] = schema.get("properties", {})
        if not properties and schema.get("patternProperties"):
            (each,) = schema["patternProperties"].values()
            return {str(draw.randint(0, 500)): self.value(each, depth + 1) for _ in range(draw.randint(0, 3))}
        if not properties:
            return dict(draw.choice(TOOL_SCHEMAS)) if draw.random() < 0.5 else {draw.choice(NAMES): self.anything()}
        kept = [name for name in properties if name in required or (depth and draw.random() < 0.4)]
        return {name: self.value(properties[name], depth + 1) for name in kept}

    def _array(self, schema: Mapping[str, Any], depth: int) -> list[Any]:
        low = schema.get("minItems", 0)
        size = max(low, self._draw.choice((1, 1, 2, 3, 0)))
        return [self.value(schema.get("items", {"type": "integer"}), depth + 1) for _ in range(size)]

    def _string(self, schema: Mapping[str, Any]) -> str:
        if "pattern" in schema:
            return self._draw.choice([text for text in (*NAMES, *NUMBERS) if re.search(schema["pattern"], text)])
        text = self.text() or "a" * schema.get("minLength", 0)
        return text[: schema.get("maxLength", 1 << 20)]

    def _integer(self, schema: Mapping[str, Any]) -> int:
        low, high = schema.get("minimum", -2), schema.get("maximum", 300)
        forbidden = schema.get("not", {"const": None})["const"]  # of numbers alone
        likely = [number for number in (0, 1, 1, 2, 3, 5, 20, 100, -1) if number != forbidden]
        return min(max(self._draw.choice(likely), low), high)
