// The last hour: one sample a second, read from ui/history once and then taken from ui/live.

import { askJson } from "./api.js";
import { signal } from "./signal.js";

const KEPT = 3600;
export const samples = signal(null); // {name: [numbers or null]}; a new object with each sample
let reading = null;

/** Read it, where that was not done yet. */
export function readHistory() {
  reading ??= askJson("ui/history", { key: "admin", quiet: true }).then(
    ({ columns }) => samples.set(joined(columns, samples.get())),
    (error) => {
      reading = null;
      throw error;
    },
  );
  return reading;
}

/** The hour has a hole where the connection was gone: it is read again. */
export function forgetHistory() {
  reading = null;
}

export function remember(sample) {
  const known = samples.get();
  const names = Object.keys(sample);
  if (!names.length || known?.time_s?.at(-1) >= sample.time_s) return;
  samples.set(Object.fromEntries(names.map((name) => [name, [...(known?.[name] ?? []).slice(1 - KEPT), sample[name]]])));
}

function joined(columns, newer) {
  if (!newer) return columns;
  const last = columns.time_s.at(-1) ?? 0;
  const from = newer.time_s.findIndex((time) => time > last);
  if (from < 0) return columns;
  return Object.fromEntries(Object.keys(columns).map((name) => [name, [...columns[name], ...newer[name].slice(from)]]));
}

/** How long ago a node of the tree was used, in seconds: samples say which look-up was when. Null: before all of them. */
export function ageOf(used, known = samples.get()) {
  if (!known || !known.lookups.length || used < known.lookups[0]) return null;
  const { lookups, time_s } = known;
  let low = 0;
  let high = lookups.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (lookups[middle] >= used) high = middle;
    else low = middle + 1;
  }
  return lookups[low] < used ? 0 : Math.max(0, time_s.at(-1) - time_s[low]);
}
