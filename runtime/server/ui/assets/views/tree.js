// The radix tree.

import { html } from "../dom.js";

export function TreeView() {
  return html`<p class="soon">Here the radix tree will be shown.</p>`;
}
