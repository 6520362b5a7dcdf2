// The live state as the views share it: what ui/live has told so far, put together. Open while a view uses it.
//
//   const seen = useMirror()   null until the first event; a new object after each one:
//     {tree: {nodes: Map, gone: Map, …}, running, waiting, reasons, leases, sample, …}

import { useEffect } from "./dom.js";
import { live, subscribe } from "./live.js";
import { remember } from "./samples.js";
import { signal, useSignal } from "./signal.js";

export const mirror = signal(null);

const FLASH_MS = 1500; // for which an evicted node is still drawn
let users = 0;
let end = null;

export function useMirror() {
  useEffect(() => {
    if (users++ === 0) end = subscribe("state", (event) => mirror.set(apply(mirror.get(), event)));
    return () => {
      if (--users === 0) end();
    };
  }, []);
  return useSignal(mirror);
}

export const useLive = () => useSignal(live);

function apply(before, { state, sample }) {
  remember(sample);
  const { tree, ...rest } = state;
  return { ...rest, sample, tree: applyTree(before?.tree, tree, Date.now()) };
}

/** `nodes` by id; `gone`: nodes that were evicted a moment ago; a node that lost its end has `cut`, the time of it. */
export function applyTree(before, told, now) {
  const nodes = told.begins || !before ? new Map() : before.nodes;
  const gone = new Map();
  for (const [id, node] of before?.gone ?? []) if (now - node.cut < FLASH_MS) gone.set(id, node);
  for (const id of told.removed) {
    if (nodes.has(id)) gone.set(id, { ...nodes.get(id), cut: now });
    nodes.delete(id);
  }
  for (const id of told.left_out) nodes.delete(id);
  for (const [id, parent, namespace, tokens, used, locks] of told.nodes) {
    const old = nodes.get(id);
    const lost = old !== undefined && old.parent === parent && tokens < old.tokens;
    const cut = lost ? now : now - (old?.cut ?? 0) < FLASH_MS ? old.cut : 0;
    nodes.set(id, { id, parent, namespace, tokens, used, locks, cut });
  }
  return { ...told, nodes, gone: told.begins ? new Map() : gone };
}
