// One connection to ui/live for all views: it is open while anybody is subscribed, and comes back by itself.
//
//   const end = subscribe("queue", (data) => …);   data: the JSON of each event of that name
//   live.get()  "closed", "connecting", "connected", "keyless" (until the user gives the admin key); live.listen(…) tells
//               of changes
//
// A view keeps what it shows while the connection is gone. It gets a whole picture again after each "connected",
// because the server cannot know what was missed.

import { ask, KeyMissing } from "./api.js";
import { connection } from "./connection.js";
import { changed } from "./keys.js";
import { signal } from "./signal.js";
import { eventsOf } from "./sse.js";

export const live = signal("closed");

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10_000;
const listeners = new Map(); // name -> set of functions
let current = null; // the AbortController of the connection that is open or tried

export function subscribe(name, listener) {
  if (!listeners.has(name)) listeners.set(name, new Set());
  listeners.get(name).add(listener);
  if (current === null) open();
  return () => unsubscribe(name, listener);
}

function unsubscribe(name, listener) {
  listeners.get(name)?.delete(listener);
  if (listeners.get(name)?.size === 0) listeners.delete(name);
  if (listeners.size === 0) current?.abort();
}

async function open() {
  const own = (current = new AbortController());
  let wait = FIRST_WAIT_MS;
  while (!own.signal.aborted) {
    live.set("connecting");
    const ended = await readAll(own.signal);
    if (ended === "connected") wait = FIRST_WAIT_MS;
    if (own.signal.aborted) break;
    live.set(ended === "keyless" ? ended : "connecting");
    await pause(ended === "keyless" ? null : wait, own.signal);
    wait = Math.min(2 * wait, LONGEST_WAIT_MS);
  }
  if (current === own) current = null;
  if (listeners.size > 0) open(); // somebody came while it ended
  else live.set("closed");
}

/** Ask the user for the admin key, until one is right or they cancel. */
export const giveKey = () => ask("ui/live", { method: "HEAD", key: "admin" }).catch(() => {});

/** What it was before it ended: "connected", "connecting" or "keyless". */
async function readAll(signal) {
  try {
    const reply = await ask("ui/live", { signal, key: "admin", quiet: true });
    live.set("connected");
    for await (const { name, data } of eventsOf(reply)) deliver(name, JSON.parse(data));
  } catch (error) {
    if (error instanceof KeyMissing) return "keyless";
    if (error.name !== "AbortError") console.warn(`ui/live: ${error.message}`);
  }
  return live.get();
}

function deliver(name, data) {
  for (const listener of [...(listeners.get(name) ?? [])]) listener(data);
}

/** `ms`: null without an end of its own. Ends early when the server is back, when the user gave another key, or when nobody is subscribed any more. */
function pause(ms, aborted) {
  const { promise, resolve } = Promise.withResolvers();
  const timer = ms === null ? 0 : setTimeout(resolve, ms);
  const ends = [connection.listen((state) => state === "up" && resolve()), changed.listen(resolve)];
  aborted.addEventListener("abort", resolve, { once: true });
  return promise.then(() => {
    clearTimeout(timer);
    for (const end of ends) end();
  });
}
