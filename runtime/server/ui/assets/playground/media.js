// Pictures, films and sound as data URIs: parts of a chat's messages, and pieces of a completion's prompt.

const MB = 1 << 20;
const WORDS = { image: "pictures", video: "films", audio: "sound" };
const names = new WeakMap(); // part -> the name of its file

/** A part of a message's content. */
export function partOf(kind, url, name) {
  const part = { type: `${kind}_url`, [`${kind}_url`]: { url } };
  names.set(part, name);
  return part;
}

export const kindOf = (part) => part.type.replace("_url", "");
export const urlOf = (part) => part[part.type].url;
export const nameOf = (part) => names.get(part);
export const wordsOf = (kinds) => Object.keys(kinds).map((kind) => WORDS[kind]).join(" or ");
const ofKind = (parts, kind) => parts.filter((part) => kindOf(part) === kind);

/** Of a message's content. */
export const partsOf = (content) => (Array.isArray(content) ? content.filter((part) => part.type !== "text") : []);
export const textOf = (content) =>
  (Array.isArray(content) ? content.filter((part) => part.type === "text").map((part) => part.text).join("") : content);

/** A text, with what stands before it. */
export const contentOf = (text, parts) =>
  (parts.length ? [...parts, ...(text.trim() ? [{ type: "text", text }] : [])] : text);

export const mediaOf = (messages) => messages.flatMap(({ content }) => partsOf(content));

/** As /generate takes them. */
export const mediaFields = (parts) => Object.fromEntries(
  Object.keys(WORDS).filter((kind) => ofKind(parts, kind).length)
    .map((kind) => [`${kind}_data`, ofKind(parts, kind).map(urlOf)]),
);

/** A refusal that names a piece, with the name of its file. */
export const withNames = (text, { body, media }) =>
  text.replace(
    /messages\[(\d+)\]\.content\[(\d+)\](?:\.\w+_url(?:\.url)?)?|(image|video|audio)_data\[(\d+)\]/g,
    (place, message, index, kind, number) =>
      nameOf(kind ? ofKind(media, kind)[number] : body.messages?.[message]?.content?.[index]) ?? place,
  );

/** Throws an Error for a request that the server would not read. */
export function checkMedia({ media }, { maxFiles, maxBody }) {
  if (media.length > maxFiles) {
    throw new Error(`it has ${media.length} files, and a request may have ${maxFiles} (--max-media-per-request).`);
  }
  const size = media.reduce((sum, part) => sum + urlOf(part).length, 0);
  if (size > maxBody * MB) {
    throw new Error(`its files take ${inMB(size)}, and a request may have ${maxBody} MB (--max-body-mb).`);
  }
}

const inMB = (bytes) => `${+(bytes / MB).toPrecision(3)} MB`;

// -- completions: `kinds` has the placeholder of each, and the pieces of a kind stand in the order of their placeholders

/** {prompt, media} with the placeholders of more parts at a place of the prompt. */
export function inserted({ prompt, media }, parts, at, kinds) {
  const before = prompt.slice(0, at);
  const placed = [...media];
  for (const [kind, placeholder] of Object.entries(kinds)) {
    const next = ofKind(media, kind)[before.split(placeholder).length - 1];
    placed.splice(next ? placed.indexOf(next) : placed.length, 0, ...ofKind(parts, kind));
  }
  return { prompt: before + placeholdersOf(parts, kinds) + prompt.slice(at), media: placed };
}

export const placeholdersOf = (parts, kinds) => parts.map((part) => kinds[kindOf(part)]).join("");

/** {prompt, media} without a part and its placeholder. */
export function removed({ prompt, media }, part, kinds) {
  const placeholder = kinds[kindOf(part)];
  const place = ofKind(media, kindOf(part)).indexOf(part);
  const texts = prompt.split(placeholder);
  if (place + 1 < texts.length) texts.splice(place, 2, texts[place] + texts[place + 1]);
  return { prompt: texts.join(placeholder), media: media.filter((each) => each !== part) };
}

/** Texts and parts of a prompt in their order. */
export function piecesOf(prompt, media, kinds) {
  const pieces = [prompt];
  for (const part of media) {
    const placeholder = kinds[kindOf(part)];
    const place = pieces.findIndex((piece) => typeof piece === "string" && piece.includes(placeholder));
    if (place < 0) continue;
    const [before, ...after] = pieces[place].split(placeholder);
    pieces.splice(place, 1, before, part, after.join(placeholder));
  }
  return pieces.filter((piece) => piece !== "");
}
