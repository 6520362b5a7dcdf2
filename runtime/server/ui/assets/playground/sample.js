// One output: its text, Markdown or tokens, its thought and calls, how it ended.

import { html } from "../dom.js";
import { Guard } from "../guard.js";
import { Markdown } from "../markdown.js";
import { isEmpty } from "./run.js";
import { Tokens } from "./tokens.js";
import { Calls } from "./tools.js";

export const SHOWN_AS = ["markdown", "text", "tokens"];

export function Sample({ sample, as, chosen, choose, goOn }) {
  return html`
    <article class=${`sample ${chosen ? "chosen" : ""}`} aria-busy=${sample.running}>
      ${(choose || sample.origin) && html`
        <header>
          ${choose && html`<label><input type="radio" name="kept" checked=${chosen} onChange=${choose} /> keep</label>`}
          <span class="faint">${sample.origin}</span>
        </header>`}
      <${Output} sample=${sample} as=${as} goOn=${goOn} />
      ${sample.error && html`<p class="problem" role="alert">${sample.error}</p>`}
      ${!hasFailed(sample) && html`<footer class="faint">${endOf(sample)}</footer>`}
    </article>`;
}

/** An output that cannot be drawn is shown as its text. */
export function Output({ sample, as, goOn }) {
  return html`
    <${Guard} key=${`${sample.id} ${as}`} instead=${() => html`<div class="plain">${sample.text}</div>`}>
      <${Content} sample=${sample} as=${as} goOn=${goOn} />
    <//>`;
}

function Content({ sample, as, goOn }) {
  if (as === "tokens" && sample.tokens.length) return html`<${Tokens} sample=${sample} goOn=${goOn} />`;
  const { text, reasoning } = sample;
  return html`
    ${reasoning && html`
      <details class="thought" open=${!text}><summary>Thought</summary><div class="plain">${reasoning}</div></details>`}
    ${text && (as === "markdown" ? html`<${Markdown} text=${text} />` : html`<div class="plain">${text}</div>`)}
    <${Calls} calls=${sample.calls} />`;
}

/** Whether there is nothing but its error. */
export const hasFailed = (sample) => sample.error !== "" && isEmpty(sample);

function endOf(sample) {
  const { running, finish, tokens, usage } = sample;
  if (running) return tokens.length ? `${tokens.length} tokens …` : "…";
  const prompt = usage && `prompt ${usage.prompt} (${usage.cached} cached)`;
  const count = (tokens.length || isEmpty(sample)) && `${tokens.length} tokens`;
  return [finish, count, prompt].filter(Boolean).join(" · ");
}
