// Requests to the server with the user's key, and its refusals as errors that say what the server said.

import { check, messageOf, root } from "./connection.js";
import { askForKey, forgetKey, keyFor, MISSING } from "./keys.js";

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * The reply, whose status is good. `path`: without a slash at its start. `body`: sent as JSON, by POST.
 * `quiet`: nobody is asked for a key.
 * A request that `changes the server` passes `key: "admin"`. Throws Refusal, and TypeError where nothing answers.
 */
export async function ask(path, { body, method, key = "api", signal, quiet = false } = {}) {
  let wasWrong = false;
  for (;;) {
    const given = keyFor(key);
    const reply = await send(path, { body, method: method ?? (body === undefined ? "GET" : "POST"), given, signal });
    if (reply.ok) return reply;
    const refusal = new Refusal(reply.status, await messageOf(reply));
    if (!wantsKey(refusal, key)) throw refusal;
    if (forgetKey(given, reply.status)) wasWrong = true;
    if (keyFor(key) !== "" && keyFor(key) !== given) continue; // another one was given meanwhile
    if (quiet || !(await askForKey(key, wasWrong))) throw new Refusal(reply.status, MISSING[key]);
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

/** A 403 to an admin's request is about the key; to any other it is about the name or the origin of this page. */
function wantsKey(refusal, key) {
  return refusal.status === 401 || (refusal.status === 403 && key === "admin");
}
