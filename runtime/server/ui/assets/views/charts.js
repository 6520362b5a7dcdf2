// The last hour in curves, and the newest numbers beside them.

import { html, useEffect, useRef, useState } from "../dom.js";
import { useLive, useMirror } from "../mirror.js";
import { forgetHistory, readHistory, samples } from "../samples.js";
import { useSignal } from "../signal.js";
import { LiveProblem, LiveSoon } from "../soon.js";
import { duration, durations, percent, short } from "../text_of.js";
import { theme } from "../theme.js";
import uPlot from "../vendor/uPlot.esm.js";

const SPANS = [["5 min", 300], ["15 min", 900], ["1 hour", 3600]];
const LEAST = 60; // seconds that are shown of a server that has just started
const HEIGHT = 170;
const CLOCK = { hour: "2-digit", minute: "2-digit" };
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600]; // seconds between two labels
/** Requests between two labels. */
const WHOLE = [...Array(10).keys()].flatMap((power) => [1, 2, 5].map((each) => each * 10 ** power));
const minutes = new Intl.DateTimeFormat("en-GB", CLOCK);
const seconds = new Intl.DateTimeFormat("en-GB", { ...CLOCK, second: "2-digit" });
const DARK = matchMedia("(prefers-color-scheme: dark)");

const ratio = (over, under) => (known) =>
  known[under].map((all, i) => (all ? known[over][i] / all : null));
const column = (name) => (known) => known[name];
const curve = (title, values) => ({ title, values: typeof values === "string" ? column(values) : values });

const CHARTS = [
  { name: "Tokens per second", write: short, least: 1, curves: [
    curve("generated", "generated_per_s"), curve("prompts computed", "computed_per_s"), curve("prompts cached", "cached_per_s")] },
  { name: "Requests", write: short, isWhole: true, least: 1, curves: [
    curve("running", "running"), curve("waiting", "waiting")] },
  { name: "Tokens of a step", write: short, least: 1, curves: [curve("tokens", "batch_tokens")] },
  { name: "KV pool", write: percent, from: 0, to: 1, curves: [
    curve("held", ratio("used_tokens", "total_tokens")), curve("cached, evictable", ratio("evictable_tokens", "total_tokens"))] },
  { name: "Prefix cache", write: percent, from: 0, to: 1, curves: [curve("hit rate", ratio("cached_per_s", "prompt_per_s"))] },
  { name: "Time to the first token", write: duration, marks: durations, least: 0.001, curves: [
    curve("p50", "first_token_p50_s"), curve("p90", "first_token_p90_s"), curve("p99", "first_token_p99_s")] },
  { name: "Time between tokens", write: duration, marks: durations, least: 0.001, curves: [
    curve("p50", "gap_p50_s"), curve("p90", "gap_p90_s"), curve("p99", "gap_p99_s")] },
  { name: "Phases of a step", write: (ms) => duration(ms && ms / 1000), marks: (all) => durations(all.map((ms) => ms / 1000)),
    least: 1, curves: [
    curve("plan", "plan_ms"), curve("forward", "forward_ms"), curve("sample", "sample_ms"), curve("results", "results_ms")] },
  { name: "Evicted and retracted per second", write: short, least: 1, curves: [
    curve("tokens evicted", "evicted_per_s"), curve("requests retracted", "retracted_per_s")] },
];

export function ChartsView() {
  useMirror();
  const state = useLive();
  const known = useSignal(samples);
  const [span, setSpan] = useState(3600);
  const [problem, setProblem] = useState("");
  useEffect(() => {
    if (state !== "connected") return;
    forgetHistory();
    readHistory().then(() => setProblem(""), (error) => setProblem(String(error.message)));
  }, [state]);
  if (problem) return html`<p class="problem">${problem}</p>`;
  if (!known) return html`<${LiveSoon} what="The last hour" />`;
  const from = Math.max(known.time_s.at(-1) - span, Math.min(known.time_s[0], known.time_s.at(-1) - LEAST));
  const start = Math.max(0, known.time_s.findIndex((time) => time >= from));
  const times = known.time_s.slice(start);
  return html`
    <${LiveProblem} />
    <fieldset class="spans"><legend class="unseen">Time that is shown</legend>
      ${SPANS.map(([title, seconds]) => html`
        <label key=${title}><input type="radio" name="span" checked=${span === seconds}
          onChange=${() => setSpan(seconds)} />${title}</label>`)}
    </fieldset>
    <div class="charts">
      ${CHARTS.map((chart) => html`<${Chart} key=${chart.name} chart=${chart} times=${times}
        rows=${chart.curves.map(({ values }) => values(known).slice(start))} from=${from} />`)}
    </div>`;
}

function Chart({ chart, times, rows, from }) {
  const place = useRef(null);
  const plot = useRef(null);
  const colours = `${useSignal(theme)} ${useDark()}`;
  useEffect(() => {
    const made = new uPlot(optionsOf(chart, place.current), [times, ...rows], place.current);
    plot.current = made;
    const observer = new ResizeObserver(([entry]) =>
      made.setSize({ width: Math.max(100, Math.floor(entry.contentRect.width)), height: HEIGHT }));
    observer.observe(place.current);
    return () => {
      observer.disconnect();
      made.destroy();
    };
  }, [chart, colours]);
  useEffect(() => {
    plot.current.batch(() => {
      plot.current.setData([times, ...rows], true);
      plot.current.setScale("x", { min: from, max: times.at(-1) });
    });
  }, [times, rows, from, colours]);
  return html`
    <figure class="chart">
      <figcaption>${chart.name}</figcaption>
      <div class="plot" ref=${place} aria-hidden="true"></div>
      <ul class="legend">
        ${chart.curves.map(({ title }, i) => html`
          <li key=${title}><i class=${`swatch curve${i}`}></i>${title} <b>${chart.write(rows[i].at(-1) ?? null)}</b></li>`)}
      </ul>
    </figure>`;
}

/** Whether the system is dark: a canvas has to be told, unlike what the stylesheet colours. */
function useDark() {
  const [isDark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const follow = () => setDark(DARK.matches);
    DARK.addEventListener("change", follow);
    return () => DARK.removeEventListener("change", follow);
  }, []);
  return isDark;
}

/** A colour of the stylesheet as a canvas understands it. */
function colour(name) {
  const probe = document.createElement("i");
  probe.style.color = `var(${name})`;
  document.body.append(probe);
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

const each = (write) => (marks) => marks.map((mark) => write(mark));
const hours = (_, marks, axis, space, step) => marks.map((time) => (step < 60 ? seconds : minutes).format(time * 1000));

function optionsOf(chart, place) {
  const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  return {
    width: Math.max(100, place.clientWidth),
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    scales: { y: { range: (_, low, high) => [chart.from ?? Math.min(0, low ?? 0), chart.to ?? Math.max(high ?? 0, chart.least) * 1.05] } },
    axes: [{ ...axis, size: 34, gap: 10, space: 80, incrs: STEPS, values: hours }, { ...axis, size: 62, incrs: chart.isWhole ? WHOLE : undefined, values: (_, marks) => (chart.marks ?? each(chart.write))(marks) }],
    series: [
      {},
      ...chart.curves.map((_, i) => ({ stroke: colour(`--curve${i}`), width: 1.5, points: { show: false }, spanGaps: false })),
    ],
  };
}
