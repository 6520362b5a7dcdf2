// What stands in the place of what has not come yet. A key that the server asks for is what it waits for.

import { html } from "./dom.js";
import { asked } from "./keys.js";
import { giveKey, live } from "./live.js";
import { useSignal } from "./signal.js";

export function Soon({ text }) {
  return html`<p class="soon">${useSignal(asked) ? "It comes with the key." : text}</p>`;
}

/** What a client's key cannot show. */
function Keyless() {
  return html`It takes the admin key, because it shows what the server does for all of its clients.
    ${" "}<button type="button" class="quiet" onClick=${giveKey}>Give the admin key</button>`;
}

/** Above what was shown before the server asked for another key. */
export function LiveProblem() {
  const isKeyless = useSignal(live) === "keyless";
  return isKeyless && html`<p class="problem" role="alert">This is no longer up to date. <${Keyless} /></p>`;
}

/** Of the live state. */
export function LiveSoon({ what }) {
  const state = useSignal(live);
  const texts = { connected: `${what} is coming.`, keyless: html`${what} is not shown with this key. <${Keyless} />` };
  return html`<${Soon} text=${texts[state] ?? "Connecting …"} />`;
}
