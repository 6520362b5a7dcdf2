// The API key and the admin key: kept for this tab alone (sessionStorage), and asked for when the server wants one.

import { signal } from "./signal.js";

export const KINDS = ["api", "admin"];
export const asked = signal(null); // what the dialog asks: {kind, refused, given, answer}, or null
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

/**
 * As what this key was held that it is not, if it was; `kind`: what was wanted. A 401 says that it opens nothing, a 403
 * that it is the API key and no admin key.
 */
export function forgetKey(key, status, kind) {
  const held = KINDS.filter((each) => key !== "" && keyOf(each) === key);
  const wrong = status === 401 ? held : held.filter((each) => each === "admin");
  if (status !== 401 && wrong.length && !keyOf("api")) setKey("api", key);
  for (const each of wrong) setKey(each, "");
  return wrong.includes(kind) ? kind : (wrong[0] ?? null);
}

/**
 * Whether the user gave a key. Requests that fail together open one dialog; a question of another kind waits, and is not
 * asked if a key came meanwhile, which may be the one. `refused`: the kind of a key that was wrong, or null.
 */
export async function askForKey(kind, refused) {
  for (let open = asked.get(); open !== null; open = asked.get()) {
    if ((await open.given) || open.kind === kind) return open.given;
  }
  const { promise, resolve } = Promise.withResolvers();
  asked.set({ kind, refused, given: promise, answer: (key) => answered(kind, key, resolve) });
  return promise;
}

function answered(kind, key, resolve) {
  asked.set(null);
  if (key) setKey(kind, key);
  resolve(Boolean(key));
}
