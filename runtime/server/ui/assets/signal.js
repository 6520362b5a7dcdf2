// A value with listeners: what several parts of the page show, and any of them may set.

import { useEffect, useState } from "./dom.js";

export function signal(value) {
  const listeners = new Set();
  return {
    get: () => value,
    set(next) {
      if (Object.is(next, value)) return;
      value = next;
      for (const listener of [...listeners]) listener(value);
    },
    /** Returns what ends it. */
    listen(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

/** The value in a component, which is drawn again when it changes. */
export function useSignal(shared) {
  const [value, setValue] = useState(shared.get());
  useEffect(() => {
    setValue(() => shared.get());
    return shared.listen((next) => setValue(() => next));
  }, [shared]);
  return value;
}
