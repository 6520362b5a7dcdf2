// The form of sampling parameters, read from /openapi.json: whatever the server takes has a control, and nothing else.

const CONSTRAINTS = new Set(["json_schema", "regex", "ebnf", "structural_tag", "grammar_backend"]); // have an editor
const FIRST = ["max_new_tokens", "temperature", "top_p", "top_k", "min_p", "n", "sampling_seed"];

/** Chats call these otherwise (OpenAI's names); all others have one name. */
export const CHAT_NAMES = { max_new_tokens: "max_tokens", min_new_tokens: "min_tokens", sampling_seed: "seed" };

/** [{name, text, kind, ...}] in the order of the form; `first`: always shown. */
export function parametersOf(document) {
  const { properties } = document.components.schemas.GivenParams;
  const names = Object.keys(properties).filter((name) => !CONSTRAINTS.has(name) && !properties[name]["x-unbuilt"]);
  const ordered = [...FIRST.filter((name) => names.includes(name)), ...names.filter((name) => !FIRST.includes(name))];
  return ordered.map((name) => ({
    name, text: properties[name].description ?? "", first: FIRST.includes(name), ...controlOf(properties[name]),
  }));
}

export function backendsOf(document) {
  const schema = document.components.schemas.GivenParams.properties.grammar_backend;
  return alternatives(schema).flatMap((each) => each.enum ?? []);
}

/** Every type that a schema allows, without null. */
function alternatives(schema) {
  return (schema.anyOf ?? [schema]).flatMap((each) => (each.anyOf ? alternatives(each) : [each]))
    .filter((each) => each.type !== "null");
}

/** kind: "number", "integer", "boolean", "choice", "lines" (a list with an entry a line), "text", "json". */
function controlOf(schema) {
  const kinds = alternatives(schema);
  const types = new Set(kinds.map((each) => each.type));
  const list = kinds.find((each) => each.type === "array");
  if (list) return { kind: "lines", whole: list.items?.type === "integer" };
  if (types.has("object")) return { kind: "json" };
  if (types.has("boolean")) return { kind: "boolean" };
  if (types.has("integer") || types.has("number")) {
    const number = kinds.find((each) => each.type === "integer" || each.type === "number");
    const others = kinds.flatMap((each) => each.enum ?? []);
    const min = number.minimum === undefined ? undefined : Math.min(number.minimum, ...others);
    return { kind: number.type, min, max: number.maximum };
  }
  if (kinds.every((each) => each.enum)) return { kind: "choice", options: kinds.flatMap((each) => each.enum) };
  return { kind: "text" };
}

/** What a control's text means. Throws an Error that says what is wrong; undefined: the server's default. */
export function valueOf(field, text) {
  if (text === undefined || text.trim() === "") return undefined;
  switch (field.kind) {
    case "number":
    case "integer":
      return numberOf(field, text);
    case "boolean":
      return text === "true";
    case "lines":
      return linesOf(field, text);
    case "json":
      return jsonOf(field.name, text);
    default:
      return text;
  }
}

function linesOf(field, text) {
  const lines = text.split("\n").filter((line) => line !== "");
  return field.whole ? lines.map((line) => numberOf(field, line)) : lines;
}

function numberOf({ name, kind }, text) {
  const value = Number(text);
  const fits = kind === "number" ? Number.isFinite(value) : Number.isSafeInteger(value);
  if (!fits) {
    const needed = kind === "number" ? "a number" : "a whole number";
    throw new Error(`${name} is ${JSON.stringify(text)}, must be ${needed}`);
  }
  return value;
}

export function jsonOf(name, text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`${name} is no JSON: ${error.message}`);
  }
}
