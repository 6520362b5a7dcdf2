// Running and waiting requests, and why each waits.

import { askJson } from "../api.js";
import { html, useState } from "../dom.js";
import { useLive, useMirror } from "../mirror.js";
import { count, duration } from "../text_of.js";

export function QueueView() {
  const seen = useMirror();
  const state = useLive();
  const [problem, setProblem] = useState("");
  if (!seen) return html`<p class="soon">${state === "connected" ? "The queue is coming." : "Connecting …"}</p>`;
  const abort = async (rid) => {
    setProblem("");
    try {
      await askJson("abort_request", { body: { rid }, key: "admin" });
    } catch (error) {
      setProblem(`${rid} was not aborted: ${error.message}`);
    }
  };
  return html`
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <h2>Waiting <span class="faint">${count(seen.num_waiting)}</span></h2>
    ${seen.num_waiting ? html`<${Reasons} reasons=${seen.reasons} />` : ""}
    <${Rows} name="waiting" rows=${seen.waiting} all=${seen.num_waiting} columns=${WAITING} abort=${abort} />
    <h2>Running <span class="faint">${count(seen.num_running)}</span></h2>
    <${Rows} name="running" rows=${seen.running} all=${seen.num_running} columns=${RUNNING} abort=${abort} />`;
}

const COMMON = [
  ["Age", (row) => duration(row.age_s), "number"],
  ["Prompt", (row) => count(row.prompt_tokens), "number"],
  ["Cached", (row) => count(row.cached_tokens), "number"],
];
const LAST = [
  ["Retractions", (row) => count(row.retractions), "number wide"],
  ["Priority", (row) => String(row.priority), "number wide"],
];
const WAITING = [["Why it waits", (row) => row.reason, "reason"], ...COMMON, ...LAST];
const RUNNING = [
  ...COMMON,
  ["Computed", (row) => html`<${Progress} row=${row} />`, "number"],
  ["Output", (row) => count(row.output_tokens), "number"],
  ...LAST,
];

/** Of the prompt, while it is computed chunk by chunk. */
function Progress({ row }) {
  const done = Math.min(row.computed_tokens, row.prompt_tokens);
  if (row.reason) return row.reason;
  if (done === row.prompt_tokens) return "all";
  return html`<progress max=${row.prompt_tokens} value=${done}></progress> ${count(done)}`;
}

function Reasons({ reasons }) {
  const rows = Object.entries(reasons).sort((a, b) => b[1] - a[1]);
  return html`<ul class="reasons">${rows.map(([reason, num]) => html`<li key=${reason}><b>${count(num)}</b> ${reason}</li>`)}</ul>`;
}

function Rows({ name, rows, all, columns, abort }) {
  if (!rows.length) return html`<p class="soon">None.</p>`;
  return html`
    <div class="scrolls" tabindex="0" role="region" aria-label=${`${name} requests`}>
      <table id=${`${name}-requests`}>
        <thead><tr><th>Request</th>${columns.map(([title, , kind]) => html`<th key=${title} class=${kind}>${title}</th>`)}<th></th></tr></thead>
        <tbody>
          ${rows.map((row) => html`
            <tr key=${row.uid}>
              <th scope="row" class="mono">${row.rid || "…"}</th>
              ${columns.map(([title, value, kind]) => html`<td key=${title} class=${kind}>${value(row)}</td>`)}
              <td>${row.rid && html`<button type="button" class="quiet" aria-label=${`Abort ${row.rid}`}
                onClick=${() => abort(row.rid)}>Abort</button>`}</td>
            </tr>`)}
        </tbody>
      </table>
    </div>
    ${all > rows.length ? html`<p class="faint">and ${count(all - rows.length)} more</p>` : ""}`;
}
