// Tokens coloured by probability, and what stood beside one. Arrow keys move, Enter or a click shows the alternatives.

import { html, useRef, useState } from "../dom.js";

const KEYS = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: 10, ArrowUp: -10, Home: -Infinity, End: Infinity };

export function Tokens({ sample, goOn }) {
  const [open, setOpen] = useState(null); // the place whose alternatives are shown
  const [at, setAt] = useState(0); // the one that Tab reaches
  const list = useRef(null);
  const last = sample.tokens.length - 1;
  const press = (event) => {
    if (event.key === "Enter" || event.key === " ") {
      event.preventDefault();
      show(at);
    }
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    const place = Math.min(last, Math.max(0, at + KEYS[event.key]));
    setAt(place);
    list.current.children[place].focus();
  };
  const show = (place) => {
    setAt(place);
    setOpen(place === open ? null : place);
  };
  return html`
    <div class="tokens mono" ref=${list} role="group" aria-label="Tokens by probability" onKeyDown=${press}>
      ${sample.tokens.map((token, place) => html`
        <span role="button" key=${place} class=${classOf(token, place === open)} style=${{ "--p": probability(token) }}
          tabindex=${place === Math.min(at, last) ? 0 : -1} aria-expanded=${place === open}
          title=${`${percent(token)} · id ${token.id}`} onClick=${() => show(place)}
          onFocus=${() => setAt(place)}>${shown(token.text)}</span>`)}
    </div>
    ${open !== null && open <= last && html`
      <${Alternatives} token=${sample.tokens[open]} running=${sample.running} goOn=${(token) => goOn(open, token)}
        close=${() => { setOpen(null); list.current.children[open].focus(); }} />`}`;
}

function Alternatives({ token, running, goOn, close }) {
  const others = token.top.some((each) => each.id === token.id) ? token.top : [token, ...token.top];
  const leave = (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    close();
  };
  return html`
    <div class="alternatives" role="group" aria-label="Alternatives" onKeyDown=${leave}>
      ${others.map((other) => html`
        <div key=${other.id} class="alternative" style=${{ "--p": probability(other) }}>
          <span class="bar" aria-hidden="true"></span>
          <code>${shown(other.text) || "∅"}</code>
          <span class="faint percent">${percent(other)}</span>
          ${other.id === token.id
            ? html`<span class="faint last">this one</span>`
            : html`<button type="button" class="quiet last" disabled=${running} aria-label=${`Go on from ${other.text}`}
                onClick=${() => goOn(other)}>Go on</button>`}
        </div>`)}
      ${token.top.length === 0 && html`
        <p class="faint">Alternatives were not asked for: see “alternatives” in the settings.</p>`}
    </div>`;
}

const probability = ({ logprob }) => Math.exp(logprob);

function percent(token) {
  const value = 100 * probability(token);
  return `${value >= 0.01 ? value.toPrecision(3) : "< 0.01"} %`;
}

function classOf(token, isOpen) {
  return ["token", isOpen && "open", token.chosen && "chosen"].filter(Boolean).join(" ");
}

/** White space that would not be seen has a sign. */
const shown = (text) => text.replaceAll("\n", "⏎\n").replaceAll("\t", "⇥");
