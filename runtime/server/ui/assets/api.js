// Requests to the server with the user's key, and its refusals as errors that say what the server said.

import { check, messageOf, root } from "./connection.js";
import { askForKey, forgetKey, keyFor, MISSING } from "./keys.js";

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/** The server wants another key, and nobody gave one. */
export class KeyMissing extends Refusal {}

/**
 * The reply, whose status is good. `path`: without a slash at its start. `body`: sent as JSON, by POST.
 * `quiet`: nobody is asked for a key, and none is forgotten.
 * A request that changes the server, or reads what it does for all of its clients, passes `key: "admin"`. Throws Refusal, and TypeError where nothing answers.
 */
export async function ask(path, { body, method, key = "api", signal, quiet = false } = {}) {
  let refused = null; // the kind of a key that was wrong
  for (;;) {
    const given = keyFor(key);
    const reply = await send(path, { body, method: method ?? (body === undefined ? "GET" : "POST"), given, signal });
    if (reply.ok) return reply;
    const refusal = new Refusal(reply.status, await messageOf(reply));
    if (!wantsKey(refusal, key, given)) throw refusal;
    if (!quiet) refused = forgetKey(given, reply.status, key) ?? refused;
    if (keyFor(key) !== "" && keyFor(key) !== given) continue; // another one was given meanwhile
    if (quiet) throw new KeyMissing(reply.status, refusal.message);
    if (!(await askForKey(key, refused))) throw new KeyMissing(reply.status, MISSING[key]);
  }
}

export const askJson = async (path, options) => (await ask(path, options)).json();

async function send(path, { body, method, given, signal }) {
  const headers = given ? { Authorization: `Bearer ${given}` } : {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const data = body === undefined ? undefined : JSON.stringify(body);
  try {
    return await fetch(new URL(path, root), { method, headers, body: data, signal, cache: "no-store" });
  } catch (error) {
    if (error.name !== "AbortError") check();
    throw error;
  }
}

/** A 403 to an admin's request is about the key that was sent; to any other, about the name or origin of this page. */
function wantsKey(refusal, key, given) {
  return refusal.status === 401 || (refusal.status === 403 && key === "admin" && given !== "");
}
