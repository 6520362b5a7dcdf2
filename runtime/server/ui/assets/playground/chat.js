// A chat: what was said, the samples of the next turn, and what the user says then.

import { html, useState } from "../dom.js";
import {
  contentOf, partsOf, paste, PictureButton, PictureProblems, textOf, Thumbnails, usePictures,
} from "./pictures.js";
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
        : html`
          <${Thumbnails} parts=${partsOf(turn.message.content)} />
          <div class="plain">${textOf(turn.message.content)}</div>`}
    </article>`);
}

/**
 * `calls`: those of the last turn, whose results the user gives. `send`: gets messages, and says whether they were sent.
 */
export function Composer({ calls, send, running, limits }) {
  const [text, setText] = useState("");
  const pictures = usePictures(limits);
  const [results, setResults] = useState({});
  const submit = (event) => {
    event.preventDefault();
    const told = calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: results[id] ?? "" }));
    const isSaid = text.trim() !== "" || pictures.parts.length > 0;
    const said = isSaid ? [{ role: "user", content: contentOf(text, pictures.parts) }] : [];
    if (running || pictures.isReading || told.length + said.length === 0) return;
    if (!send([...told, ...said])) return;
    setText("");
    pictures.clear();
    setResults({});
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  return html`
    <form class=${`composer ${pictures.isOver ? "over" : ""}`} onSubmit=${submit}
      onPaste=${limits.takesPictures ? (event) => paste(event, pictures.add) : null}>
      ${calls.map(({ id, function: { name } }) => html`
        <label key=${id} class="field"><span>Result of ${name}</span>
          <textarea rows="2" class="mono" value=${results[id] ?? ""}
            onInput=${(event) => setResults({ ...results, [id]: event.target.value })}></textarea></label>`)}
      <textarea id="composer" rows="3" aria-label="Message"
        placeholder="Message (Enter sends, Shift+Enter is a new line)" value=${text}
        onInput=${(event) => setText(event.target.value)} onKeyDown=${press}></textarea>
      <${Thumbnails} parts=${pictures.parts} remove=${pictures.remove} />
      <${PictureProblems} problems=${pictures.problems} />
      <div class="row">
        <button type="submit" disabled=${running}>Send</button>
        ${limits.takesPictures && html`<${PictureButton} pictures=${pictures} />`}
      </div>
    </form>`;
}
