// Preact and htm as the page uses them: html`<b>${text}</b>` makes elements, and what is put in is a text node.

import htm from "./vendor/htm.module.js";
import { h } from "./vendor/preact.mjs";

export const html = htm.bind(h);
export { Component, Fragment, createRef, render } from "./vendor/preact.mjs";
export {
  useCallback, useEffect, useLayoutEffect, useMemo, useReducer, useRef, useState,
} from "./vendor/preact-hooks.mjs";
