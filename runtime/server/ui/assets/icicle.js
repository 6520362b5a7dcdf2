// Where each node of the tree is drawn: as wide as the tokens in it and below it, one row below its parent.

const NARROW = 1.5; // pixels; neighbours that are narrower are drawn as one

/**
 * `nodes`: of mirror.js. `root`: the id of the node that fills the width; 0: all of them, in a row for their namespaces.
 * Returns {boxes, depth}; a box is {x, width, row, node} or {x, width, row, rest: how many}, in order from left to right.
 */
export function icicle(nodes, root, width) {
  const below = childrenOf(nodes);
  const totals = totalsOf(nodes, below);
  sortEach(below, nodes);
  const tops = root ? [nodes.get(root)] : (below.get(0) ?? []);
  const boxes = [];
  place(tops, 0, width, 0, sum(tops, totals));
  return { boxes, depth: boxes.reduce((deepest, box) => Math.max(deepest, box.row + 1), 0) };

  function place(siblings, x, space, row, tokens) {
    let rest = null;
    for (const node of siblings) {
      const wide = tokens ? (space * totals.get(node.id)) / tokens : 0;
      if (wide < NARROW) {
        if (rest === null) boxes.push((rest = { x, width: 0, row, rest: 0 }));
        rest.rest += 1;
        rest.width += wide;
      } else {
        rest = null;
        boxes.push({ x, width: wide, row, node });
        place(below.get(node.id) ?? [], x, wide, row + 1, totals.get(node.id));
      }
      x += wide;
    }
  }
}

export function childrenOf(nodes) {
  const below = new Map();
  for (const node of nodes.values()) {
    const parent = nodes.has(node.parent) ? node.parent : 0;
    if (!below.has(parent)) below.set(parent, []);
    below.get(parent).push(node);
  }
  return below;
}

/** By the oldest node in each, so that nothing changes its place: what is split gets a new node above it. */
function sortEach(below, nodes) {
  const oldest = new Map([...nodes.keys()].map((id) => [id, id]));
  for (const id of oldest.keys()) {
    for (let at = nodes.get(id); at && oldest.get(at.id) >= id; at = nodes.get(at.parent)) oldest.set(at.id, id);
  }
  for (const siblings of below.values()) {
    siblings.sort((a, b) => a.namespace - b.namespace || oldest.get(a.id) - oldest.get(b.id));
  }
}

/** Tokens in each node and below it. */
export function totalsOf(nodes, below = childrenOf(nodes)) {
  const totals = new Map();
  const stack = [...(below.get(0) ?? [])];
  const order = [];
  while (stack.length) {
    const node = stack.pop();
    order.push(node);
    stack.push(...(below.get(node.id) ?? []));
  }
  for (const node of order.reverse()) {
    totals.set(node.id, node.tokens + sum(below.get(node.id) ?? [], totals));
  }
  return totals;
}

const sum = (nodes, totals) => nodes.reduce((all, node) => all + totals.get(node.id), 0);

/** From the top to this node. */
export function pathOf(nodes, id) {
  const path = [];
  for (let node = nodes.get(id); node; node = nodes.get(node.parent)) path.unshift(node);
  return path;
}
