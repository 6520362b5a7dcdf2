// The text that a completion goes on with, and the files at its placeholders.

import { html, useRef } from "../dom.js";
import { AddButton, FileProblems, pasteInto, Thumbnails, useFiles } from "./attachments.js";
import { inserted, placeholdersOf, removed } from "./media.js";

export function Prompt({ asked: { prompt, media }, limits, change, run, running }) {
  const text = useRef(null);
  const files = useFiles(limits, (parts) => {
    const at = text.current?.selectionEnd ?? prompt.length;
    text.current?.setRangeText(placeholdersOf(parts, limits.kinds), at, at, "end"); // leaves the cursor behind them
    change((now) => inserted(now, parts, at, limits.kinds));
  });
  const complete = () => running || files.isReading || run();
  const press = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) complete();
  };
  return html`
    <div class=${`composer ${files.isOver ? "over" : ""}`} ref=${files.box} onPaste=${pasteInto(files)}>
      <textarea id="prompt" rows="6" aria-label="Prompt" ref=${text} value=${prompt}
        placeholder="A text to go on with (Ctrl+Enter completes)"
        onInput=${(event) => change({ prompt: event.target.value })} onKeyDown=${press}></textarea>
      <${Thumbnails} parts=${media} remove=${(part) => change((now) => removed(now, part, limits.kinds))} />
      <${FileProblems} problems=${files.problems} />
      <div class="row">
        <button type="button" id="complete" disabled=${running || files.isReading} onClick=${complete}>Complete</button>
        <${AddButton} files=${files} />
      </div>
    </div>`;
}
