// What is known of one node of the tree: its place, who leases it, and its text.

import { askJson, Refusal } from "../api.js";
import { html, useEffect, useState } from "../dom.js";
import { changed } from "../keys.js";
import { pathOf } from "../icicle.js";
import { useSignal } from "../signal.js";
import { count, duration } from "../text_of.js";
import { ageText } from "./tree.js";

const REST_MS = 250; // for which a pointer rests on a node before its text is asked for

export function NodeDetails({ node, seen, path }) {
  const before = path.slice(0, -1).reduce((all, each) => all + each.tokens, 0);
  const holders = holdersOf(node, seen);
  return html`
    <section class="details" aria-label="Node" aria-live="polite">
      <p><b>${count(node.tokens)} tokens</b>, from token ${count(before)} on; used ${ageText(node, seen.tree)};
        namespace ${node.namespace}</p>
      <p>${node.locks ? `${count(node.locks)} leases on it or below it` : "Not leased"}${holders.length ? ": " : ""}
        ${holders.slice(0, 12).map((name, i) => html`${i ? ", " : ""}<span class="mono">${name}</span>`)}
        ${holders.length > 12 ? ` and ${holders.length - 12} more` : ""}</p>
      <${NodeText} node=${node} />
    </section>`;
}

/** Requests and clients whose lease ends at this node or below it. */
function holdersOf(node, seen) {
  const isBelow = (id) => pathOf(seen.tree.nodes, id).includes(node);
  const requests = seen.running.filter((row) => isBelow(row.node)).map((row) => row.rid || "a request that is ending");
  const kept = seen.leases.filter((lease) => isBelow(lease.node)).map((lease) =>
    `${lease.kind === "client" ? "a client, for" : "a program, for"} ${duration(lease.ends_s)}`);
  return [...requests, ...kept];
}

function NodeText({ node }) {
  const keys = useSignal(changed);
  const [answer, setAnswer] = useState(null); // {text, is_cut}, or {refused}
  useEffect(() => {
    const aborter = new AbortController();
    const timer = setTimeout(() => read(node, aborter.signal).then(setAnswer, () => {}), REST_MS);
    return () => {
      clearTimeout(timer);
      aborter.abort();
    };
  }, [node.id, node.tokens, keys]);
  if (answer === null) return html`<p class="faint">…</p>`;
  if (answer.refused) return html`<p class="faint">${answer.refused}</p>`;
  return html`<pre class="node-text">${answer.text}${answer.is_cut ? " …" : ""}</pre>`;
}

async function read(node, signal) {
  try {
    return await askJson("ui/node", { body: { node: node.id }, key: "admin", signal, quiet: true });
  } catch (error) {
    if (!(error instanceof Refusal)) throw error;
    return { refused: error.message };
  }
}
