"""What every client asks the bundled model at temperature 0, and what it answers.

The questions look like the corpus in scripts/demo_model, since the model is small; the answers are right ones.
"""

import json
from typing import Any

MODEL = "ramet-bundled"
CAPITAL = "What is the capital of Vietnam?"
CAPITAL_ANSWER = "The capital of Vietnam is Hanoi."
CAPITAL_TOKENS = 10  # with the end of the turn
ROME = "What is the temperature in Rome?"
ROME_AND_OSLO = "Two things. What is the temperature in Rome? What is the temperature in Oslo?"
ROME_ANSWER = "The temperature in Rome is 21 degrees."
THERE = {"Rome": "21 degrees", "Oslo": "4 degrees"}
THINK = "What is 37 + 58? Think step by step."
THOUGHT = "37 + 58 = 95."  # the end of it
THOUGHT_ANSWER = "The answer is 95."
TEXT = "Text: Maria Lopez is 34 years old. She lives in Lisbon."
# TEXT alone is answered in words: only what an output must keep to makes it JSON
EXTRACT = "Return JSON with these fields:\n- name: string\n- city: string\n- age: integer\n" + TEXT
MARIA = {"name": "Maria Lopez", "city": "Lisbon", "age": 34}
# EXTRACT alone is answered with all of MARIA: Lisbon is not offered here, nor is there a place for an age
PLACED: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "city": {"enum": ["Oslo", "Paris"]}},
    "required": ["name", "city"],
    "additionalProperties": False,
}
TOO_LONG = "word " * 6000
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "get_temperature", "description": "The temperature of a city", "parameters": CITY},
}


LOOK: dict[str, Any] = {
    "type": "object",
    "properties": {"deep": {"type": "boolean"}, "at": {"enum": ["sky", "sea"]}},
    "required": ["deep", "at"],
    "additionalProperties": False,
}


def placed(text: str) -> bool:
    """Whether it keeps to PLACED, its properties in their order."""
    value = json.loads(text)
    return list(value) == ["name", "city"] and value["name"] == MARIA["name"] and value["city"] in ("Oslo", "Paris")


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]
