// The controls of sampling parameters. An empty one leaves the parameter out: its placeholder is the server's default.

import { html } from "../dom.js";

export function Parameters({ fields, values, defaults, change }) {
  const control = (field) => html`
    <${Parameter} key=${field.name} field=${field} text=${values[field.name] ?? ""} fallback=${defaults[field.name]}
      change=${(text) => change(field.name, text)} />`;
  return html`
    <div class="fields">${fields.filter((field) => field.first).map(control)}</div>
    <details>
      <summary>More parameters</summary>
      <div class="fields">${fields.filter((field) => !field.first).map(control)}</div>
    </details>`;
}

function Parameter({ field, text, fallback, change }) {
  const shared = { id: `param-${field.name}`, value: text, onInput: (event) => change(event.target.value) };
  const placeholder = fallback === undefined || fallback === null ? "" : shownDefault(fallback);
  return html`
    <label class=${`field ${text ? "set" : ""}`} title=${field.text} for=${shared.id}>
      <span>${field.name}</span>
      ${controlFor(field, shared, placeholder)}
    </label>`;
}

function controlFor(field, shared, placeholder) {
  switch (field.kind) {
    case "boolean":
      return html`<${Choice} ...${shared} options=${["true", "false"]} placeholder=${placeholder} />`;
    case "choice":
      return html`<${Choice} ...${shared} options=${field.options} placeholder=${placeholder} />`;
    case "lines":
      return html`<textarea ...${shared} rows="1" placeholder=${placeholder || "one a line"}></textarea>`;
    case "json":
      return html`<textarea ...${shared} rows="1" placeholder=${placeholder || "JSON"} class="mono"></textarea>`;
    case "number":
    case "integer":
      return html`
        <input ...${shared} type="number" step=${field.kind === "integer" ? "1" : "any"} placeholder=${placeholder}
          min=${field.min} max=${field.max} />`;
    default:
      return html`<input ...${shared} type="text" placeholder=${placeholder} />`;
  }
}

function Choice({ id, value, onInput, options, placeholder }) {
  return html`
    <select id=${id} value=${value} onChange=${onInput}>
      <option value="">${placeholder ? `default (${placeholder})` : "default"}</option>
      ${options.map((option) => html`<option value=${option}>${option}</option>`)}
    </select>`;
}

function shownDefault(value) {
  if (typeof value !== "object") return String(value);
  return Object.keys(value).length ? JSON.stringify(value) : "";
}
