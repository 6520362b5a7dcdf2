// A chat: what was said, the samples of the next turn, and what the user says then.

import { html, useState } from "../dom.js";
import { Output } from "./sample.js";

/** The message that a sample becomes when the chat goes on. */
export function messageOf(sample) {
  return {
    role: "assistant", content: sample.text || null,
    ...(sample.reasoning && { reasoning_content: sample.reasoning }),
    ...(sample.calls.length && { tool_calls: sample.calls }),
  };
}

export function TurnHeader({ role, index, cut }) {
  return html`
    <header><b>${role}</b><span class="grow"></span>
      <button type="button" class="quiet small" onClick=${() => cut(index)}
        aria-label=${`Remove this message and those after it (${index + 1})`}>remove from here</button></header>`;
}

/** A turn: {message, sample}; `sample` is there where the model wrote it here. */
export function Turns({ turns, as, goOn, cut }) {
  return turns.map((turn, index) => html`
    <article key=${index} class=${`turn ${turn.message.role}`}>
      <${TurnHeader} role=${turn.message.role} index=${index} cut=${cut} />
      ${turn.sample
        ? html`<${Output} sample=${turn.sample} as=${as} goOn=${(place, token) => goOn(index, place, token)} />`
        : html`<div class="plain">${turn.message.content}</div>`}
    </article>`);
}

/** `calls`: those of the last turn, whose results the user gives. `send`: gets messages, and says whether they were sent. */
export function Composer({ calls, send, running }) {
  const [text, setText] = useState("");
  const [results, setResults] = useState({});
  const submit = (event) => {
    event.preventDefault();
    const told = calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: results[id] ?? "" }));
    const said = text.trim() ? [{ role: "user", content: text }] : [];
    if (running || told.length + said.length === 0) return;
    if (!send([...told, ...said])) return;
    setText("");
    setResults({});
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`
    <form class="composer" onSubmit=${submit}>
      ${calls.map(({ id, function: { name } }) => html`
        <label key=${id} class="field"><span>Result of ${name}</span>
          <textarea rows="2" class="mono" value=${results[id] ?? ""}
            onInput=${(event) => setResults({ ...results, [id]: event.target.value })}></textarea></label>`)}
      <textarea id="composer" rows="3" aria-label="Message"
        placeholder="Message (Enter sends, Shift+Enter is a new line)" value=${text}
        onInput=${(event) => setText(event.target.value)} onKeyDown=${press}></textarea>
      <button type="submit" disabled=${running}>Send</button>
    </form>`;
}
