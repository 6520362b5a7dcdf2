// What an output must keep to, and what each backend of the server makes of it.
//
// The finding is the server's own: a request of one token under the constraint, which compiles it as any other request
// would, and is refused with the place and the reason where it cannot.

import { ask, Refusal } from "../api.js";
import { html, useEffect, useState } from "../dom.js";

export const KINDS = {
  none: { title: "none" },
  json_schema: { title: "JSON schema", sample: '{"type": "object", "properties": {"city": {"type": "string"}}}' },
  regex: { title: "regex", sample: "[A-Z][a-z]+\\." },
  ebnf: { title: "grammar (EBNF)", sample: 'root ::= "yes" | "no"' },
  structural_tag: { title: "structural tag", sample: '{"type": "structural_tag", "format": {"type": "any_text"}}' },
};
const IN_JSON = new Set(["json_schema", "structural_tag"]);
const PAUSE_MS = 600; // after the last key

/** Null where the text can be sent. */
export function problemOf({ kind, text }) {
  if (!IN_JSON.has(kind) || text.trim() === "") return null;
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return `This is no JSON: ${error.message}`;
  }
}

/** The fields of a request; none where there is no constraint. */
export function constraintFields({ kind, text, backend }) {
  if (kind === "none" || text.trim() === "") return {};
  return { [kind]: IN_JSON.has(kind) ? JSON.parse(text) : text, ...(backend && { grammar_backend: backend }) };
}

export function ConstraintEditor({ constraint, backends, change }) {
  const { kind, text, backend } = constraint;
  return html`
    <div class="constraint">
      <div class="row">
        <label class="field"><span>Constraint</span>
          <select id="constraint-kind" value=${kind}
            onChange=${(event) => change({ ...constraint, kind: event.target.value })}>
            ${Object.entries(KINDS).map(([name, { title }]) => html`<option value=${name}>${title}</option>`)}
          </select>
        </label>
        ${kind !== "none" && html`
          <label class="field"><span>Backend</span>
            <select value=${backend} onChange=${(event) => change({ ...constraint, backend: event.target.value })}>
              <option value="">the server's</option>
              ${backends.map((name) => html`<option value=${name}>${name}</option>`)}
            </select>
          </label>`}
      </div>
      ${kind !== "none" && html`
        <textarea id="constraint-text" class="mono" rows="6" spellcheck="false" aria-label="The constraint"
          placeholder=${KINDS[kind].sample} value=${text}
          onInput=${(event) => change({ ...constraint, text: event.target.value })}></textarea>
        <${Findings} constraint=${constraint} backends=${backends} />`}
    </div>`;
}

function Findings({ constraint, backends }) {
  const [found, setFound] = useState(null); // backend -> {state, why}; null: not asked yet
  const { kind, text } = constraint;
  const problem = problemOf(constraint);
  useEffect(() => {
    setFound(null);
    if (problem !== null || text.trim() === "") return undefined;
    const aborting = new AbortController();
    const timer = setTimeout(() => examine(constraint, backends, aborting.signal, setFound), PAUSE_MS);
    return () => {
      clearTimeout(timer);
      aborting.abort();
    };
  }, [kind, text, problem, backends]);
  if (problem !== null) return html`<p class="problem" role="status">${problem}</p>`;
  if (found === null) return null;
  return html`
    <ul class="findings" role="status" aria-label="What the backends make of it">
      ${alike(backends, found).map(({ names, state, why }) => html`
        <li key=${names[0]} class=${state}><b>${names.join(", ")}</b> ${why}</li>`)}
    </ul>`;
}

/** The backends that say the same stand together: [{names, state, why}]. */
function alike(backends, found) {
  const groups = new Map();
  for (const backend of backends) {
    const { state, why } = found[backend] ?? { state: "asked", why: "…" };
    const group = groups.get(why) ?? { names: [], state, why };
    group.names.push(backend);
    groups.set(why, group);
  }
  return [...groups.values()];
}

/** One after the other, so that a check is no load on a server that serves. */
async function examine(constraint, backends, signal, show) {
  let found = {};
  show(found);
  for (const backend of backends) {
    const finding = await tried({ ...constraint, backend }, signal);
    if (signal.aborted) return;
    found = { ...found, [backend]: finding };
    show(found);
  }
}

async function tried(constraint, signal) {
  const body = { text: " ", sampling_params: { max_new_tokens: 1, ...constraintFields(constraint) } };
  try {
    await ask("generate", { body, signal });
    return { state: "compiles", why: "it compiles" };
  } catch (error) {
    if (error.name === "AbortError") return {};
    const refused = error instanceof Refusal && error.status < 500;
    const own = error.message.replaceAll(`sampling_params.${constraint.kind}`, `the ${KINDS[constraint.kind].title}`);
    if (refused) return { state: "refused", why: own };
    return { state: "failed", why: `cannot be asked: ${error.message}` };
  }
}
