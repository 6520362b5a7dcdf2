// Whether the server answers: asked every few seconds while somebody looks, and at once when a request failed.

import { signal } from "./signal.js";

export const root = new URL("..", import.meta.url); // of the server, below the prefix of a proxy too
export const connection = signal("up"); // or "down"

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
  connection.set((await answers()) ? "up" : "down");
  clearTimeout(timer);
  timer = setTimeout(check, connection.get() === "up" ? UP_MS : DOWN_MS);
}

async function answers() {
  try {
    const reply = await fetch(new URL("health", root), { cache: "no-store", signal: AbortSignal.timeout(PATIENCE_MS) });
    return reply.ok;
  } catch {
    return false;
  }
}
