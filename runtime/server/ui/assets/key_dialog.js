// The dialog for keys. It opens when the server asks for one, or by the button.

import { html, useEffect, useRef, useState } from "./dom.js";
import { asked, changed, KINDS, keyOf, setKey } from "./keys.js";
import { signal, useSignal } from "./signal.js";

const NAMES = { api: "API key", admin: "admin key" };
const TITLES = { api: "API key", admin: "Admin key" };
const STAY = "Keys stay in this tab and are forgotten when it closes.";
const WANTED = { api: "The server asks for its API key.", admin: "This takes the server’s admin key." };
const opened = signal(false); // by the button

export function KeyButton() {
  useSignal(changed);
  const held = KINDS.filter(keyOf).map((kind) => TITLES[kind]);
  const title = held.length ? `held in this tab: ${held.join(", ")}` : "no key is held";
  return html`
    <button type="button" class="quiet" title=${title} onClick=${() => opened.set(true)}>
      ${held.length ? "Keys ●" : "Keys"}</button>`;
}

export function KeyDialog() {
  const question = useSignal(asked);
  const byButton = useSignal(opened);
  const shown = question !== null || byButton;
  const dialog = useRef(null);
  useEffect(() => {
    if (shown && !dialog.current.open) dialog.current.showModal();
    if (!shown && dialog.current.open) dialog.current.close();
  }, [shown, question]); // Escape closes it, whatever is asked next
  const done = () => opened.set(false);
  const cancel = () => {
    done();
    asked.get()?.answer("");
  };
  const kinds = question === null ? KINDS : [question.kind];
  return html`
    <dialog ref=${dialog} aria-label="Keys" onCancel=${cancel}>
      ${shown && html`
        <${KeyForm} key=${kinds.join()} kinds=${kinds} question=${question} done=${done} cancel=${cancel} />`}
    </dialog>`;
}

function reasonOf({ kind, refused }) {
  const wrong = refused && `That ${NAMES[refused]} is wrong.`;
  return [wrong, refused !== kind && WANTED[kind]].filter(Boolean).join(" ");
}

function KeyForm({ kinds, question, done, cancel }) {
  const [keys, setKeys] = useState(Object.fromEntries(kinds.map((kind) => [kind, keyOf(kind)])));
  const submit = (event) => {
    event.preventDefault();
    if (question === null) for (const kind of kinds) setKey(kind, keys[kind].trim());
    else question.answer(keys[question.kind].trim());
    done();
  };
  return html`
    <form onSubmit=${submit}>
      <p>${question ? reasonOf(question) : STAY}</p>
      ${kinds.map((kind) => html`
        <label>${TITLES[kind]}
          <input type="password" autocomplete="off" value=${keys[kind]}
            onInput=${(event) => setKeys({ ...keys, [kind]: event.target.value })} />
        </label>`)}
      <div class="buttons">
        <button type="submit">Use</button>
        <button type="button" class="quiet" onClick=${cancel}>Cancel</button>
      </div>
    </form>`;
}
