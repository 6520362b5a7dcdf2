// Pictures of a chat: added by button, drop or paste, shown as thumbnails, sent as data URIs.

import { html, useEffect, useRef, useState } from "../dom.js";

const MB = 1 << 20;
const names = new WeakMap(); // part of a message -> the name of its file

export const nameOf = (part) => names.get(part) ?? "picture";

/** Of a message's content. */
export const partsOf = (content) => (Array.isArray(content) ? content.filter((part) => part.type === "image_url") : []);
export const textOf = (content) =>
  (Array.isArray(content) ? content.filter((part) => part.type === "text").map((part) => part.text).join("") : content);

/** A text, with what stands before it. */
export const contentOf = (text, parts) =>
  (parts.length ? [...parts, ...(text.trim() ? [{ type: "text", text }] : [])] : text);

/** The data URIs of messages in their order, as /generate takes them. */
export const imageData = (messages) =>
  messages.flatMap(({ content }) => partsOf(content).map((part) => part.image_url.url));

/** A refusal that names a part, with the name of its picture. */
export const withNames = (text, messages = []) =>
  text.replace(/messages\[(\d+)\]\.content\[(\d+)\](\.image_url)?(\.url)?/g, (place, message, part) => {
    const found = messages[message]?.content?.[part];
    return names.has(found) ? nameOf(found) : place;
  });

/** Throws an Error for a body that the server would not read. */
export function checkSize(body, { maxBody }) {
  if (!body.messages || !imageData(body.messages).length) return;
  const size = imageData(body.messages).reduce((sum, url) => sum + url.length, 0);
  if (size > maxBody * MB) {
    const most = `${maxBody} MB (--max-body-mb)`;
    throw new Error(`the pictures of this chat take ${inMB(size)}, and a request may have ${most}.`);
  }
}

const inMB = (bytes) => `${(bytes / MB).toFixed(1)} MB`;

/** A part, or an Error that says why there is none. */
async function read(file, { maxPicture }) {
  const name = file.name || "picture";
  if (!file.type.startsWith("image/")) throw new Error(`${name} is no picture.`);
  if (file.size > maxPicture * MB) {
    throw new Error(`${name} has ${inMB(file.size)}, and a picture may have ${maxPicture} MB (--max-media-mb).`);
  }
  const part = { type: "image_url", image_url: { url: await asDataURI(file) } };
  names.set(part, name);
  return part;
}

function asDataURI(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error(`${file.name} cannot be read: ${reader.error.message}`));
    reader.readAsDataURL(file);
  });
}

/**
 * {parts, problems, isReading, isOver, add, remove, clear}: of the message that is being written.
 *
 * `isOver`: files are dragged over the window. What is dropped anywhere is added, for a browser would leave the page.
 */
export function usePictures(limits) {
  const [parts, setParts] = useState([]);
  const [problems, setProblems] = useState([]);
  const [numReading, setNumReading] = useState(0);
  const add = async (files) => {
    setNumReading((num) => num + 1);
    const done = await Promise.allSettled([...files].map((file) => read(file, limits)));
    setNumReading((num) => num - 1);
    setParts((before) => [...before, ...done.filter((each) => each.value).map((each) => each.value)]);
    setProblems(done.filter((each) => each.reason).map((each) => each.reason.message));
  };
  const remove = (part) => {
    setProblems([]);
    setParts((before) => before.filter((each) => each !== part));
  };
  const clear = () => {
    setProblems([]);
    setParts([]);
  };
  const isOver = useDrops(limits.takesPictures ? add : null);
  return { parts, problems, isReading: numReading > 0, isOver, add, remove, clear };
}

const filesOf = (transfer) => (transfer?.types.includes("Files") ? transfer.files : null);

/** Whether files are over the window. `add`: null where none are taken. */
function useDrops(add) {
  const [isOver, setOver] = useState(false);
  const latest = useRef(add);
  latest.current = add;
  useEffect(() => {
    if (!add) return undefined;
    const over = (event) => {
      if (!filesOf(event.dataTransfer)) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event) => event.relatedTarget === null && setOver(false);
    const drop = (event) => {
      setOver(false);
      const files = filesOf(event.dataTransfer);
      if (!files) return;
      event.preventDefault();
      latest.current(files);
    };
    const listeners = { dragover: over, dragleave: leave, drop };
    for (const [name, call] of Object.entries(listeners)) window.addEventListener(name, call);
    return () => {
      for (const [name, call] of Object.entries(listeners)) window.removeEventListener(name, call);
    };
  }, [add === null]);
  return isOver;
}

/** A paste of a text that has a picture of itself, as spreadsheets make them, is one of a text. */
export function paste(event, add) {
  const { files, types } = event.clipboardData;
  if (!files.length || types.includes("text/plain")) return;
  event.preventDefault();
  add(files);
}

export function PictureButton({ pictures }) {
  const input = useRef(null);
  const chosen = ({ target }) => {
    pictures.add(target.files);
    target.value = ""; // the same file may be chosen again
  };
  return html`
    <input type="file" id="picture-files" accept="image/*" multiple hidden ref=${input} onChange=${chosen} />
    <button type="button" id="add-pictures" class="quiet" onClick=${() => input.current.click()}>Add pictures</button>`;
}

/** Those of a message that is written; `remove`: null where they have been sent. */
export function Thumbnails({ parts, remove = null }) {
  const list = useRef(null);
  if (!parts.length) return null;
  const drop = (part, index) => {
    remove(part);
    // the focus stays where the next one comes to
    const buttons = [...list.current.querySelectorAll("button")].filter((_, place) => place !== index);
    (buttons[index] ?? buttons.at(-1) ?? document.getElementById("composer")).focus();
  };
  return html`
    <ul class="pictures" ref=${list} aria-label="Pictures">
      ${parts.map((part, index) => html`
        <li key=${part}>
          <img src=${part.image_url.url} alt=${nameOf(part)} title=${nameOf(part)} />
          ${remove && html`
            <button type="button" class="quiet small" aria-label=${`Remove ${nameOf(part)}`}
              onClick=${() => drop(part, index)}>remove</button>`}
        </li>`)}
    </ul>`;
}

export const PictureProblems = ({ problems }) =>
  problems.map((text) => html`<p key=${text} class="problem" role="alert">${text}</p>`);
