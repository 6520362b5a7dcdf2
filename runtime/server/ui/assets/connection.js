// Whether the server answers that it is well: asked every few seconds while somebody looks, and at once when a request
// failed.

import { signal } from "./signal.js";

export const root = new URL("..", import.meta.url); // of the server, below the prefix of a proxy too
export const connection = signal("up"); // or "down"
export const trouble = signal(""); // why it is down, as the banner says it

const UP_MS = 3000;
const DOWN_MS = 1000;
const PATIENCE_MS = 5000;
let timer = 0;

export function watch() {
  document.addEventListener("visibilitychange", check);
  window.addEventListener("online", check);
  check();
}

export async function check() {
  clearTimeout(timer);
  if (document.hidden) return;
  trouble.set(await askHealth());
  connection.set(trouble.get() ? "down" : "up");
  clearTimeout(timer);
  timer = setTimeout(check, connection.get() === "up" ? UP_MS : DOWN_MS);
}

/** What is wrong; nothing: an empty text. */
async function askHealth() {
  try {
    const reply = await fetch(new URL("health", root), { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    return reply.ok ? "" : `The server is not well: ${await messageOf(reply)}`;
  } catch {
    return "The server does not answer.";
  }
}

/** Of a refusal. */
export async function messageOf(reply) {
  const text = await reply.text();
  try {
    const { error } = JSON.parse(text);
    return error.message ?? String(error);
  } catch {
    return text || `status ${reply.status}`;
  }
}
