// The samples of the page as they are filled: one run at a time, drawn at most twenty times a second.

import { askJson } from "../api.js";
import { useEffect, useRef, useState } from "../dom.js";
import { continuedRequest } from "./request.js";
import { branch, fill, idsOf, newSample } from "./run.js";

/**
 * {samples, kept, running, start, stop, goOn, keep, show}
 *
 * start(request, n)  n samples of a request, in the place of those that are shown
 * goOn(asked, sample, place, token)  one more sample, with this token at that place of another one; resolves when it
 *                                    has begun
 */
export function useSamples() {
  const [samples, setSamples] = useState([]);
  const [kept, setKept] = useState(0);
  const aborting = useRef(null);
  const redraw = useRedraw();
  const running = samples.some((sample) => sample.running);

  const stop = () => aborting.current?.abort();
  const show = (shown, which = 0) => {
    stop();
    setSamples(shown);
    setKept(which);
  };
  const run = (filled, request) => {
    aborting.current = new AbortController();
    return fill(filled, request, aborting.current.signal, redraw);
  };
  const start = (request, n) => {
    const fresh = Array.from({ length: n }, () => newSample({ media: request.media }));
    show(fresh);
    return run(fresh, request);
  };
  const goOn = async (asked, sample, place, token, others = samples) => {
    const before = [...idsOf(sample).slice(0, place), token.id];
    const request = continuedRequest(asked, sample.promptIds, before, sample.media);
    const branched = branch(sample, place, token, await textOf(before));
    show([...others, branched], others.length);
    void run([branched], request);
  };
  return { samples, kept, running, start, stop, goOn, show, keep: setKept };
}

const textOf = async (ids) => (await askJson("v1/detokenize", { body: { tokens: ids } })).text;

const REDRAW_MS = 50; // long Markdown takes some milliseconds each time

function useRedraw() {
  const [, setCount] = useState(0);
  const timer = useRef(0);
  useEffect(() => () => clearTimeout(timer.current), []);
  return () => {
    timer.current ||= setTimeout(() => {
      timer.current = 0;
      setCount((count) => count + 1);
    }, REDRAW_MS);
  };
}
