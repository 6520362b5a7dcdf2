// The API key and the admin key: kept for this tab alone (sessionStorage), and asked for when the server wants one.

import { signal } from "./signal.js";

export const KINDS = ["api", "admin"];
export const asked = signal(null); // what the dialog asks: {kind, wasWrong, answer}, or null
export const MISSING = { api: "The API key is missing.", admin: "The admin key is missing." };
export const changed = signal(0); // counts changes of keys

const place = (kind) => `ramet.${kind}_key`;

export const keyOf = (kind) => sessionStorage.getItem(place(kind)) ?? "";

export function setKey(kind, key) {
  if (key) sessionStorage.setItem(place(kind), key);
  else sessionStorage.removeItem(place(kind));
  changed.set(changed.get() + 1);
}

/** What a request sends. The admin key opens everything, so it stands in where there is no API key. */
export const keyFor = (kind) => (kind === "admin" ? keyOf("admin") || keyOf("api") : keyOf("api") || keyOf("admin"));

/** Whether this key was held where it does not belong: a 401 says that it opens nothing, a 403 that it is no admin key. */
export function forgetKey(key, status) {
  const wrong = KINDS.filter((kind) => keyOf(kind) === key && key !== "" && (status === 401 || kind === "admin"));
  for (const kind of wrong) setKey(kind, "");
  return wrong.length > 0;
}

/** Whether the user gave a key. Requests that fail together open one dialog. */
export function askForKey(kind, wasWrong) {
  const open = asked.get();
  if (open !== null && open.kind === kind) return open.given;
  const { promise, resolve } = Promise.withResolvers();
  asked.set({ kind, wasWrong, given: promise, answer: (key) => answered(kind, key, resolve) });
  return promise;
}

function answered(kind, key, resolve) {
  asked.set(null);
  if (key) setKey(kind, key);
  resolve(Boolean(key));
}
