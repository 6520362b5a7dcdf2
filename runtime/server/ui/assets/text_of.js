// Numbers, times and ages as the views write them.

const grouped = new Intl.NumberFormat("en");

export const count = (number) => grouped.format(Math.round(number));
export const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %` : "–");

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  if (seconds < 0.001) return `${(seconds * 1e6).toFixed(0)} µs`;
  if (seconds < 1) return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3600).toFixed(0)} h`;
}

export const short = (number) =>
  number === null || !Number.isFinite(number) ? "–" : Math.abs(number) >= 100 ? count(number) : String(+number.toPrecision(3));
