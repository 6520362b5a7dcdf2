// Running and waiting requests.

import { html } from "../dom.js";

export function QueueView() {
  return html`<p class="soon">Here running and waiting requests will be shown.</p>`;
}
