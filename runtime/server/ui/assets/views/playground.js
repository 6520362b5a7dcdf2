// Chat and completion.

import { html } from "../dom.js";

export function PlaygroundView() {
  return html`<p class="soon">Here one can chat with the model.</p>`;
}
