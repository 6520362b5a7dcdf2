// Tools that the model may call, as JSON, and calls as they are shown.

import { html } from "../dom.js";
import { jsonOf } from "./schema.js";

const SAMPLE = `[{"type": "function", "function": {"name": "get_weather",
  "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}]`;
const CHOICES = ["auto", "none", "required"];

/** The fields of a request. Throws an Error that says what is wrong. */
export function toolFields({ text, choice }) {
  if (text.trim() === "") return {};
  const tools = jsonOf("Tools", text);
  if (!Array.isArray(tools)) throw new Error("Tools must be a list");
  return { tools, ...(choice && { tool_choice: choice }) };
}

export function ToolsEditor({ tools, change }) {
  const problem = problemOf(tools);
  return html`
    <details open=${tools.text !== ""}>
      <summary>Tools</summary>
      <textarea id="tools-text" class="mono" rows="5" spellcheck="false" aria-label="Tools as a JSON list"
        placeholder=${SAMPLE} value=${tools.text}
        onInput=${(event) => change({ ...tools, text: event.target.value })}></textarea>
      ${problem && html`<p class="problem">${problem}</p>`}
      <label class="field"><span>tool_choice</span>
        <select value=${tools.choice} onChange=${(event) => change({ ...tools, choice: event.target.value })}>
          <option value="">default</option>
          ${CHOICES.map((name) => html`<option value=${name}>${name}</option>`)}
        </select>
      </label>
    </details>`;
}

export function problemOf(tools) {
  try {
    toolFields(tools);
    return "";
  } catch (error) {
    return error.message;
  }
}

export function Calls({ calls }) {
  return calls.map((call, index) => html`
    <div key=${index} class="call mono"><b>${call.function.name}</b>(${indented(call.function.arguments)})</div>`);
}

function indented(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text; // still coming
  }
}
