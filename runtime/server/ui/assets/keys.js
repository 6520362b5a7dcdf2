// The API key and the admin key: kept for this tab alone (sessionStorage), and asked for when the server wants one.

import { signal } from "./signal.js";

export const KINDS = ["api", "admin"];
export const asked = signal(null); // what the dialog asks: {kind, why, answer}, or null
export const changed = signal(0); // counts changes of keys

const place = (kind) => `ramet.${kind}_key`;

export const keyOf = (kind) => sessionStorage.getItem(place(kind)) ?? "";

export function setKey(kind, key) {
  if (key) sessionStorage.setItem(place(kind), key);
  else sessionStorage.removeItem(place(kind));
  changed.set(changed.get() + 1);
}

/** The headers of a request. The admin key opens everything, so it stands in where there is no API key. */
export function keyHeaders(kind) {
  const key = kind === "admin" ? keyOf("admin") || keyOf("api") : keyOf("api") || keyOf("admin");
  return key ? { Authorization: `Bearer ${key}` } : {};
}

/** Whether the user gave a key. Requests that fail together open one dialog. */
export function askForKey(kind, why) {
  const open = asked.get();
  if (open !== null && open.kind === kind) return open.given;
  const { promise, resolve } = Promise.withResolvers();
  asked.set({ kind, why, given: promise, answer: (key) => answered(kind, key, resolve) });
  return promise;
}

function answered(kind, key, resolve) {
  asked.set(null);
  if (key) setKey(kind, key);
  resolve(Boolean(key));
}
