// Running and waiting requests, and why each waits.

import { askJson } from "../api.js";
import { html, useState } from "../dom.js";
import { useMirror } from "../mirror.js";
import { LiveProblem, LiveSoon } from "../soon.js";
import { count, duration } from "../text_of.js";

export function QueueView() {
  const seen = useMirror();
  const [problem, setProblem] = useState("");
  if (!seen) return html`<${LiveSoon} what="The queue" />`;
  const abort = async (rid) => {
    setProblem("");
    try {
      await askJson("abort_request", { body: { rid }, key: "admin" });
    } catch (error) {
      setProblem(`${rid} was not aborted: ${error.message}`);
    }
  };
  return html`
    <${LiveProblem} />
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

const KINDS = {
  just_arrived: "have just arrived",
  rows: "for a row (--max-running-requests)",
  prefill_budget: "for prompt tokens of a step (--chunked-prefill-size)",
  pace: "for a step that keeps to --max-itl-ms",
  memory: "for memory",
  retraction: "because memory ran out in this step",
  prefix: "for a prefix that another request is computing",
  contexts: "for a look-up of their contexts",
  adapters: "for an adapter's slot (--max-loras-per-batch)",
  media: "for features of pictures, films and sound",
  penalties: "for a place of --max-penalised-requests",
  pause: "because generation is paused",
  programs: "for memory that programs may need",
  grammar: "for their constraint to be compiled",
};

function Reasons({ reasons }) {
  const rows = Object.entries(reasons).filter(([, num]) => num > 0).sort((a, b) => b[1] - a[1]);
  return html`<ul class="reasons">${rows.map(([kind, num]) => html`
    <li key=${kind}><b>${count(num)}</b> ${KINDS[kind] ?? kind}</li>`)}</ul>`;
}

function Rows({ name, rows, all, columns, abort }) {
  if (!rows.length) return html`<p class="soon">None.</p>`;
  return html`
    <div class="scrolls" tabindex="0" role="region" aria-label=${`${name} requests`}>
      <table id=${`${name}-requests`}>
        <thead><tr><th>Request</th><th><span class="unseen">Abort</span></th>${columns.map(([title, , kind]) => html`<th key=${title} class=${kind}>${title}</th>`)}</tr></thead>
        <tbody>
          ${rows.map((row) => html`
            <tr key=${row.uid}>
              <th scope="row" class="mono" title=${row.rid}>${row.rid || "…"}</th>
              <td class="abort">${row.rid && html`<button type="button" class="quiet" aria-label=${`Abort ${row.rid}`}
                onClick=${() => abort(row.rid)}>Abort</button>`}</td>
              ${columns.map(([title, value, kind]) => html`<td key=${title} class=${kind} data-title=${title}>${value(row)}</td>`)}
            </tr>`)}
        </tbody>
      </table>
    </div>
    ${all > rows.length ? html`<p class="faint">and ${count(all - rows.length)} more</p>` : ""}`;
}
