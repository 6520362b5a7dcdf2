// What is asked for beside the text: model, system prompt, parameters, constraint, tools, and what is shown.

import { html } from "../dom.js";
import { ConstraintEditor } from "./constraint.js";
import { Parameters } from "./parameters.js";
import { ToolsEditor } from "./tools.js";

export const INITIAL = {
  mode: "chat", model: "", system: "", prompt: "", media: [], params: {}, numTop: 5, more: "",
  constraint: { kind: "none", text: "", backend: "" },
  tools: { text: "", choice: "" },
};

export function Settings({ asked, server, change }) {
  const isChat = asked.mode === "chat";
  const defaults = isChat ? { ...server.defaults, max_new_tokens: "context’s end" } : server.defaults;
  const setParam = (name, text) => change({ params: { ...asked.params, [name]: text } });
  const typed = (name) => (event) => change({ [name]: event.target.value });
  return html`
    <form class="settings panel" aria-label="Settings" onSubmit=${(event) => event.preventDefault()}>
      <${Modes} chosen=${asked.mode} choose=${(mode) => change({ mode })} />
      <label class="field wide"><span>Model</span>
        <select id="model" value=${asked.model} title=${asked.model} onChange=${typed("model")}>
          ${server.models.map((name) => html`<option value=${name}>${shortName(name, server.models)}</option>`)}
        </select></label>
      ${isChat && html`
        <label class="field wide"><span>System prompt</span>
          <textarea id="system" rows="2" value=${asked.system} onInput=${typed("system")}></textarea></label>`}
      <${Parameters} fields=${server.fields} values=${asked.params} defaults=${defaults} change=${setParam} />
      <${ConstraintEditor} constraint=${asked.constraint} backends=${server.backends}
        change=${(constraint) => change({ constraint })} />
      ${isChat && html`<${ToolsEditor} tools=${asked.tools} change=${(tools) => change({ tools })} />`}
      <details>
        <summary>Other fields</summary>
        <textarea id="more" class="mono" rows="3" spellcheck="false" value=${asked.more} onInput=${typed("more")}
          aria-label="Other fields of the request, as a JSON object"
          placeholder='{"reasoning_effort": "none"}'></textarea>
      </details>
      <label class="field"><span>alternatives</span>
        <input id="num-top" type="number" min="0" max=${MAX_TOP} step="1" value=${asked.numTop}
          onInput=${(event) => change({ numTop: numTopOf(event.target.value) })} /></label>
    </form>`;
}

/** Of a path its last part, unless another model ends so as well. */
function shortName(name, names) {
  const last = lastPart(name);
  return names.filter((each) => lastPart(each) === last).length > 1 ? name : last;
}

const lastPart = (name) => name.replace(/\/+$/, "").split("/").at(-1);

function Modes({ chosen, choose }) {
  return html`
    <div class="row modes" role="radiogroup" aria-label="Mode">
      ${["chat", "completion"].map((mode) => html`
        <label key=${mode}>
          <input type="radio" name="mode" checked=${mode === chosen} onChange=${() => choose(mode)} /> ${mode}
        </label>`)}
    </div>`;
}

const MAX_TOP = 20; // as many as a chat may ask for
const numTopOf = (text) => Math.min(MAX_TOP, Math.max(0, Math.trunc(Number(text))));
