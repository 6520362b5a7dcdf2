// Markdown of a model as elements. What a model writes may be an attack, so there are three walls:
//
// 1. HTML in the text is shown as text: only Markdown's own structure becomes elements, and pictures become words.
// 2. DOMPurify keeps the elements and attributes of the lists below, and links to web and mail addresses. These are
//    lists of what is allowed and not of what is forbidden: DOMPurify's own let pictures, styles and forms through.
// 3. The page's policy (assets.py): the browser loads, runs and submits nothing that is not this server's. It is the
//    last wall and no whole one: no policy keeps a page from being led elsewhere, which the first two do.
//
// Every place that shows Markdown uses `markdown`; nothing else on the page makes elements of a text.

import { html, useLayoutEffect, useRef } from "./dom.js";
import { Marked } from "./vendor/marked.esm.js";
import DOMPurify from "./vendor/purify.es.mjs";

const ALLOWED = {
  ALLOWED_TAGS: [
    "p", "br", "hr", "h1", "h2", "h3", "h4", "h5", "h6", "strong", "em", "del", "code", "pre", "blockquote",
    "ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td", "a",
  ],
  ALLOWED_ATTR: ["href", "align", "start"],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_ARIA_ATTR: false,
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;" };
const escaped = (text) => text.replace(/[&<>"']/g, (character) => ENTITIES[character]);

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    html: ({ raw }) => escaped(raw),
    image: ({ text, href }) => escaped(text || href),
  },
});

/** A fragment that is safe whatever the HTML is. */
export function sanitised(markup) {
  const fragment = DOMPurify.sanitize(markup, ALLOWED);
  for (const link of fragment.querySelectorAll("a[href]")) {
    link.rel = "noopener noreferrer";
    link.target = "_blank";
  }
  return fragment;
}

/** A text whose nesting is too deep for the reader's stack (a `>` for each of thousands of levels) stays as it is. */
export function markdown(text) {
  try {
    return sanitised(marked.parse(text));
  } catch {
    const plain = document.createElement("div");
    plain.className = "plain";
    plain.textContent = text;
    return plain;
  }
}

export function Markdown({ text }) {
  const place = useRef(null);
  useLayoutEffect(() => place.current.replaceChildren(markdown(text)), [text]);
  return html`<div class="markdown" ref=${place}></div>`;
}
