// The last hour in curves.

import { html } from "../dom.js";

export function ChartsView() {
  return html`<p class="soon">Here the last hour will be shown in curves.</p>`;
}
