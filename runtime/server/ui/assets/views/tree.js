// The radix tree as an icicle: a node is as wide as the tokens in it and below it, and as bright as it was used lately.

import { html, useEffect, useMemo, useRef, useState } from "../dom.js";
import { icicle, childrenOf, pathOf } from "../icicle.js";
import { useLive, useMirror } from "../mirror.js";
import { ageOf, readHistory } from "../samples.js";
import { LiveProblem, LiveSoon } from "../soon.js";
import { count, duration, percent } from "../text_of.js";
import { NodeDetails } from "./node.js";
import { PrefixSearch } from "./search.js";

const ROW = 24; // pixels
const AGES = [10, 60, 600, Infinity]; // seconds: those of the legend
const AGE_NAMES = ["used in the last 10 s", "minute", "10 minutes", "earlier"];

export function TreeView() {
  const seen = useMirror();
  const [chosen, choose] = useState(0); // by keyboard or by a click
  const [hovered, hover] = useState(0);
  const [root, setRoot] = useState(0);
  const [found, setFound] = useState(null);
  const state = useLive();
  useEffect(() => {
    if (state === "connected") readHistory().catch(() => {});
  }, [state]);
  if (!seen) return html`<${LiveSoon} what="The tree" />`;
  const { tree } = seen;
  const nodes = tree.nodes;
  const top = nodes.has(root) ? root : 0;
  const shown = nodes.get(hovered) ?? nodes.get(chosen);
  return html`
    <${LiveProblem} />
    <${TreeNumbers} seen=${seen} />
    <${PrefixSearch} found=${found} setFound=${setFound} />
    ${top ? html`<p><button type="button" class="quiet" onClick=${() => setRoot(0)}>↑ The whole tree</button></p>` : ""}
    ${nodes.size || tree.gone.size
      ? html`<${Icicle} tree=${tree} root=${top} chosen=${chosen} choose=${choose} hover=${hover} found=${found} zoom=${setRoot} />`
      : html`<p class="soon">Nothing is cached.</p>`}
    <${Legend} />
    ${shown && html`<${NodeDetails} key=${shown.id} node=${shown} seen=${seen} path=${pathOf(nodes, shown.id)} />`}`;
}

function TreeNumbers({ seen }) {
  const { tree, sample } = seen;
  const left = tree.num_nodes - tree.nodes.size;
  const rate = sample.prompt_per_s ? sample.cached_per_s / sample.prompt_per_s : NaN;
  const numbers = [
    ["Nodes", count(tree.num_nodes)],
    ["Tokens", count(tree.num_tokens)],
    ["Leased", count(tree.num_locked_tokens)],
    ["Of the KV pool", percent(sample.total_tokens ? tree.num_tokens / sample.total_tokens : NaN)],
    ["Hit rate, last 5 s", percent(rate)],
    ["Evicted per s", count(sample.evicted_per_s ?? 0)],
  ];
  return html`
    <dl class="numbers" data-testid="tree-numbers">
      ${numbers.map(([name, value]) => html`<div key=${name}><dt>${name}</dt><dd>${value}</dd></div>`)}
    </dl>
    ${left > 0 && tree.is_whole
      ? html`<p class="faint">${count(left)} nodes that were used earlier are not drawn.</p>` : ""}`;
}

function Icicle({ tree, root, chosen, choose, hover, found, zoom }) {
  const frame = useRef(null);
  const width = useWidth(frame);
  const nodes = useMemo(() => new Map([...tree.nodes, ...tree.gone]), [tree]);
  const { boxes, depth } = useMemo(() => icicle(nodes, root, width), [nodes, root, width]);
  const marks = new Set(found?.path.map(([id]) => id));
  const onKey = (event) => {
    const next = moved(event.key, tree.nodes, root, chosen);
    if (next !== undefined) choose(next);
    else if (event.key === "Enter" && chosen) zoom(chosen === root ? (tree.nodes.get(root)?.parent ?? 0) : chosen);
    else if (event.key === "Escape" && root) zoom(tree.nodes.get(root)?.parent ?? 0);
    else return;
    event.preventDefault();
  };
  return html`
    <div class="icicle" ref=${frame} tabindex="0" role="tree" aria-label="Cached prefixes" onKeyDown=${onKey}
      aria-activedescendant=${nodes.has(chosen) ? `node-${chosen}` : undefined}
      aria-describedby="icicle-keys" onMouseLeave=${() => hover(0)}>
      <svg width=${width} height=${depth * ROW} aria-hidden="false">
        ${boxes.map((box) => box.node
          ? html`<${Box} key=${box.node.id} ...${box} tree=${tree} isChosen=${box.node.id === chosen}
              isFound=${marks.has(box.node.id)} choose=${choose} hover=${hover} zoom=${zoom} />`
          : html`<${Rest} key=${`rest-${box.row}-${Math.round(box.x)}`} ...${box} />`)}
      </svg>
    </div>
    <p id="icicle-keys" class="unseen">Arrow keys move, Enter shows a node and what is below it alone, Escape goes back.</p>`;
}

function Box({ x, width, row, node, tree, isChosen, isFound, choose, hover, zoom }) {
  const isGone = tree.gone.has(node.id);
  const names = ["box", `age${ageClass(node, tree)}`];
  if (isGone) names.push("gone");
  if (node.cut && !isGone) names.push("cut");
  if (node.locks) names.push("leased");
  if (isChosen) names.push("chosen");
  if (isFound) names.push("found");
  const label = `${count(node.tokens)} tokens${node.locks ? `, ${node.locks} leases` : ""}${isGone ? ", evicted" : ""}`;
  return html`
    <g id=${`node-${node.id}`} class=${names.join(" ")} role="treeitem" aria-label=${label} aria-level=${row + 1}
      aria-selected=${isChosen} data-tokens=${node.tokens} data-parent=${node.parent}
      onMouseEnter=${() => hover(node.id)} onClick=${() => choose(node.id)} onDblClick=${() => zoom(node.id)}>
      <rect x=${x + 0.5} y=${row * ROW + 0.5} width=${Math.max(width - 1, 1)} height=${ROW - 2} rx="2" />
      ${width > 34 ? html`<text x=${x + 5} y=${row * ROW + 16}>${count(node.tokens)}</text>` : ""}
    </g>`;
}

function Rest({ x, width, row, rest }) {
  return html`
    <g class="box rest"><title>${count(rest)} small nodes</title>
      <rect x=${x} y=${row * ROW + 0.5} width=${Math.max(width, 1)} height=${ROW - 2} />
    </g>`;
}

function Legend() {
  return html`
    <ul class="legend" aria-label="Colours">
      ${AGE_NAMES.map((name, i) => html`<li key=${name}><i class=${`swatch age${i}`}></i>${name}</li>`)}
      <li><i class="swatch age1 leased"></i>leased</li>
      <li><i class="swatch gone"></i>evicted just now</li>
      <li><i class="swatch age1 found"></i>found</li>
    </ul>`;
}

export function ageText(node, tree) {
  const age = ageOf(node.used);
  if (age === null) return `${count(tree.lookups - node.used)} look-ups ago`;
  return age < 1 ? "just now" : `${duration(age)} ago`;
}

function ageClass(node) {
  const age = ageOf(node.used) ?? Infinity;
  return AGES.findIndex((limit) => age <= limit);
}

/** Where an arrow key leads from a node; undefined: nowhere. */
function moved(key, nodes, root, from) {
  const below = childrenOf(nodes);
  const node = nodes.get(from);
  if (!node) return key.startsWith("Arrow") ? root || below.get(0)?.[0]?.id : undefined;
  const siblings = below.get(nodes.has(node.parent) ? node.parent : 0) ?? [];
  const at = siblings.indexOf(node);
  if (key === "ArrowUp") return nodes.has(node.parent) && from !== root ? node.parent : from;
  if (key === "ArrowDown") return below.get(from)?.[0]?.id ?? from;
  if (key === "ArrowRight") return from === root ? from : (siblings[at + 1]?.id ?? from);
  if (key === "ArrowLeft") return from === root ? from : (siblings[at - 1]?.id ?? from);
  return undefined;
}

function useWidth(frame) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    const observer = new ResizeObserver(([entry]) => setWidth(Math.floor(entry.contentRect.width)));
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  return width;
}
