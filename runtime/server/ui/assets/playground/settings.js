// What is asked for beside the text: model, system prompt, parameters, constraint, tools, and what is shown.

import { html } from "../dom.js";
import { ConstraintEditor } from "./constraint.js";
import { Parameters } from "./parameters.js";
import { ToolsEditor } from "./tools.js";

export const INITIAL = {
  mode: "chat", model: "", system: "", prompt: "", params: {}, numTop: 5, more: "",
  constraint: { kind: "none", text: "", backend: "" },
  tools: { text: "", choice: "" },
};

export function Settings({ asked, server, change }) {
  const isChat = asked.mode === "chat";
  const setParam = (name, text) => change({ params: { ...asked.params, [name]: text } });
  return html`
    <form class="settings panel" aria-label="Settings" onSubmit=${(event) => event.preventDefault()}>
      <div class="row modes" role="radiogroup" aria-label="Mode">
        ${["chat", "completion"].map((mode) => html`
          <label key=${mode}><input type="radio" name="mode" checked=${mode === asked.mode} onChange=${() => change({ mode })} /> ${mode}</label>`)}
      </div>
      <label class="field wide"><span>Model</span>
        <select id="model" value=${asked.model} onChange=${(event) => change({ model: event.target.value })}>
          ${server.models.map((name) => html`<option value=${name}>${name}</option>`)}
        </select>
      </label>
      ${isChat && html`
        <label class="field wide"><span>System prompt</span>
          <textarea id="system" rows="2" value=${asked.system} onInput=${(event) => change({ system: event.target.value })}></textarea></label>`}
      <${Parameters} fields=${server.fields} values=${asked.params} defaults=${server.defaults} change=${setParam} />
      <${ConstraintEditor} constraint=${asked.constraint} backends=${server.backends} change=${(constraint) => change({ constraint })} />
      ${isChat && html`<${ToolsEditor} tools=${asked.tools} change=${(tools) => change({ tools })} />`}
      <details>
        <summary>Other fields</summary>
        <textarea id="more" class="mono" rows="3" spellcheck="false" aria-label="Other fields of the request, as a JSON object"
          placeholder='{"reasoning_effort": "none"}' value=${asked.more} onInput=${(event) => change({ more: event.target.value })}></textarea>
      </details>
      <label class="field"><span>alternatives</span>
        <input type="number" min="0" max="20" step="1" value=${asked.numTop}
          onInput=${(event) => change({ numTop: Math.min(20, Math.max(0, Math.trunc(Number(event.target.value)))) })} /></label>
    </form>`;
}
