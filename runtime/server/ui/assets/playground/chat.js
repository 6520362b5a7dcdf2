// A chat: what was said, the samples of the next turn, and what the user says then.

import { html, useState } from "../dom.js";
import { AddButton, FileProblems, pasteInto, Thumbnails, useFiles } from "./attachments.js";
import { contentOf, partsOf, textOf } from "./media.js";
import { Output } from "./sample.js";

/** The message that a sample becomes when the chat goes on. */
export function messageOf(sample) {
  return {
    role: "assistant", content: sample.text || null,
    ...(sample.reasoning && { reasoning_content: sample.reasoning }),
    ...(sample.calls.length && { tool_calls: sample.calls }),
  };
}

export function TurnHeader({ role, index, cut, edit = null }) {
  return html`
    <header><b>${role}</b><span class="grow"></span>
      ${edit && html`
        <button type="button" class="quiet small" onClick=${() => edit(index)}
          aria-label=${`Edit this message, and remove those after it (${index + 1})`}>edit</button>`}
      <button type="button" class="quiet small" onClick=${() => cut(index)}
        aria-label=${`Remove this message and those after it (${index + 1})`}>remove from here</button></header>`;
}

/** A turn: {message, sample}; `sample` is there where the model wrote it here. */
export function Turns({ turns, as, goOn, cut, edit }) {
  return turns.map((turn, index) => html`
    <article key=${index} class=${`turn ${turn.message.role}`}>
      <${TurnHeader} role=${turn.message.role} index=${index} cut=${cut}
        edit=${turn.message.role === "user" ? edit : null} />
      ${turn.sample
        ? html`<${Output} sample=${turn.sample} as=${as} goOn=${(place, token) => goOn(index, place, token)} />`
        : html`
          <${Thumbnails} parts=${partsOf(turn.message.content)} />
          <div class="plain">${textOf(turn.message.content)}</div>`}
    </article>`);
}

/**
 * `draft`: {text, media}. `calls`: those of the last turn, whose results the user gives. `send`: gets messages, and says
 * whether they were sent.
 */
export function Composer({ draft: { text, media }, change, calls, send, running, limits }) {
  const files = useFiles(limits, (parts) => change((now) => ({ ...now, media: [...now.media, ...parts] })));
  const [results, setResults] = useState({});
  const submit = (event) => {
    event.preventDefault();
    const told = calls.map(({ id }) => ({ role: "tool", tool_call_id: id, content: results[id] ?? "" }));
    const isSaid = text.trim() !== "" || media.length > 0;
    const said = isSaid ? [{ role: "user", content: contentOf(text, media) }] : [];
    if (running || files.isReading || told.length + said.length === 0) return;
    if (!send([...told, ...said])) return;
    change(() => EMPTY_DRAFT);
    files.forget();
    setResults({});
  };
  const press = (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) submit(event);
  };
  const remove = (part) => change((now) => ({ ...now, media: now.media.filter((each) => each !== part) }));
  return html`
    <form class=${`composer ${files.isOver ? "over" : ""}`} ref=${files.box} onSubmit=${submit}
      onPaste=${pasteInto(files)}>
      ${calls.map(({ id, function: { name } }) => html`
        <label key=${id} class="field"><span>Result of ${name}</span>
          <textarea rows="2" class="mono" value=${results[id] ?? ""}
            onInput=${(event) => setResults({ ...results, [id]: event.target.value })}></textarea></label>`)}
      <textarea id="composer" rows="3" aria-label="Message"
        placeholder="Message (Enter sends, Shift+Enter is a new line)" value=${text}
        onInput=${(event) => change((now) => ({ ...now, text: event.target.value }))} onKeyDown=${press}></textarea>
      <${Thumbnails} parts=${media} remove=${remove} />
      <${FileProblems} problems=${files.problems} />
      <div class="row">
        <button type="submit" disabled=${running || files.isReading}>Send</button>
        <${AddButton} files=${files} />
      </div>
    </form>`;
}

export const EMPTY_DRAFT = { text: "", media: [] };
