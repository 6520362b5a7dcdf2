// What a message or a prompt has beside its text: files that are chosen, dropped or pasted, and shown as thumbnails.

import { html, useEffect, useRef, useState } from "../dom.js";
import { kindOf, nameOf, partOf, urlOf, wordsOf } from "./media.js";

const MB = 1 << 20;

/** A part, or an Error that says why there is none. */
async function read(file, { kinds, maxFile }) {
  const kind = file.type.split("/", 1)[0];
  const not = (why) => new Error(`${file.name} is not added: ${why}.`);
  if (!kinds[kind]) throw not(`this model takes ${wordsOf(kinds) || "text alone"}`);
  if (file.size > maxFile * MB) throw not(`it has more than ${maxFile} MB (--max-media-mb)`);
  if (kind === "image") await checkPicture(file).catch(() => Promise.reject(not("it cannot be read as a picture")));
  return partOf(kind, await asDataURI(file).catch((error) => Promise.reject(not(error.message))), file.name);
}

const checkPicture = async (file) => (await createImageBitmap(file)).close();

function asDataURI(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

/**
 * {box, add, problems, isReading, isOver, limits}: of the composer that `box` is the reference of.
 *
 * `take` gets the parts that files became. What is dropped anywhere on the view is added; `isOver`: files are over it.
 */
export function useFiles(limits, take) {
  const box = useRef(null);
  const [problems, setProblems] = useState([]);
  const [numReading, setNumReading] = useState(0);
  const latest = useRef(null);
  const add = async (files) => {
    setNumReading((num) => num + 1);
    const done = await Promise.allSettled([...files].map((file) => read(file, limits)));
    setNumReading((num) => num - 1);
    const parts = done.filter((each) => each.value).map((each) => each.value);
    if (parts.length) latest.current.take(parts);
    setProblems(done.filter((each) => each.reason).map((each) => each.reason.message));
  };
  latest.current = { add, take };
  const isOver = useDrops(box, (files) => latest.current.add(files));
  return { box, add, problems, isReading: numReading > 0, isOver, limits, forget: () => setProblems([]) };
}

const hasFiles = (event) => event.dataTransfer?.types.includes("Files");

/** Whether files are over the window. A browser would leave the page for them, so that none is let through. */
function useDrops(box, add) {
  const [isOver, setOver] = useState(false);
  useEffect(() => {
    const isShown = () => !box.current.closest("[hidden]");
    const over = (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      event.dataTransfer.dropEffect = isShown() ? "copy" : "none";
      setOver(isShown());
    };
    const leave = (event) => event.relatedTarget === null && setOver(false);
    const drop = (event) => {
      setOver(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      if (isShown()) add(event.dataTransfer.files);
    };
    const listeners = Object.entries({ dragover: over, dragleave: leave, drop });
    for (const [name, call] of listeners) window.addEventListener(name, call);
    return () => listeners.forEach(([name, call]) => window.removeEventListener(name, call));
  }, []);
  return isOver;
}

/** For a composer. A paste of a text that has a picture of itself, as spreadsheets make them, is one of a text. */
export const pasteInto = ({ add }) => (event) => {
  const { files, types } = event.clipboardData;
  if (!files.length || types.includes("text/plain")) return;
  event.preventDefault();
  add(files);
};

export function AddButton({ files: { add, isReading, limits: { kinds } } }) {
  const input = useRef(null);
  const words = wordsOf(kinds);
  if (!words) return null;
  const chosen = ({ target }) => {
    add(target.files);
    target.value = ""; // the same file may be chosen again
  };
  const types = Object.keys(kinds).map((kind) => `${kind}/*`).join();
  return html`
    <input type="file" accept=${types} multiple hidden ref=${input} onChange=${chosen} />
    <button type="button" id="add-files" class="quiet" onClick=${() => input.current.click()}>Add ${words}</button>
    <span role="status" class="faint">${isReading && "Reading …"}</span>`;
}


/** Those of a message that is written; `remove`: null where they have been sent. */
export function Thumbnails({ parts, remove = null }) {
  const list = useRef(null);
  if (!parts.length) return null;
  const drop = (part, index) => {
    remove(part);
    // the focus stays where the next one comes to
    const buttons = [...list.current.querySelectorAll("button")].filter((_, place) => place !== index);
    (buttons[index] ?? buttons.at(-1) ?? list.current.closest(".composer").querySelector(":scope > textarea")).focus();
  };
  return html`
    <ul class="media" ref=${list} aria-label="Files">
      ${parts.map((part, index) => html`
        <li key=${part} class=${kindOf(part)} title=${nameOf(part)}>
          ${kindOf(part) === "image"
            ? html`<img src=${urlOf(part)} alt=${nameOf(part)} draggable="false" />`
            : html`<${kindOf(part)} src=${urlOf(part)} controls preload="metadata" aria-label=${nameOf(part)} />`}
          <span class="faint" aria-hidden="true">${nameOf(part)}</span>
          ${remove && html`
            <button type="button" class="quiet small" aria-label=${`Remove ${nameOf(part)}`} title="Remove"
              onClick=${() => drop(part, index)}>×</button>`}
        </li>`)}
    </ul>`;
}

export const FileProblems = ({ problems }) =>
  problems.map((text) => html`<p class="problem" role="alert">${text}</p>`);
