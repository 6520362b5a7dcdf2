// Numbers, times and ages as the views write them.

const grouped = new Intl.NumberFormat("en");

export const count = (number) => grouped.format(Math.round(number));
export const percent = (share) =>
  Number.isFinite(share) ? `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %` : "–";

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.5e-6) return "0";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(0)} h`;
}

const UNITS = [[7200, 3600, "h"], [600, 60, "min"], [1, 1, "s"], [0.001, 0.001, "ms"], [0, 1e-6, "µs"]]; // from, size, name

/** Those of an axis: in one unit, so that no two that differ read alike. */
export function durations(marks) {
  const most = Math.max(...marks);
  const [, size, name] = UNITS.find(([from]) => most >= from) ?? UNITS.at(-1);
  return marks.map((mark) => (mark ? `${+(mark / size).toPrecision(4)} ${name}` : "0"));
}

export const short = (number) =>
  number === null || !Number.isFinite(number) ? "–" : Math.abs(number) >= 100 ? count(number) : String(+number.toPrecision(3));
