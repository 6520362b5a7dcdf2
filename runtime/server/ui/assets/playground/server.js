// What the playground knows of the server: its parameters, models and defaults; read again whenever it came back, and
// with every other key.

import { askJson } from "../api.js";
import { connection } from "../connection.js";
import { useEffect, useState } from "../dom.js";
import { changed } from "../keys.js";
import { useSignal } from "../signal.js";
import { backendsOf, parametersOf } from "./schema.js";

/** {fields, backends, models, base, defaults, limits, problem}; null until it answered. */
export function useServer() {
  const [server, setServer] = useState(null);
  const state = useSignal(connection);
  const keys = useSignal(changed);
  useEffect(() => {
    if (state !== "up") return undefined;
    let timer = 0;
    let isOver = false;
    const ask = () => read().then((known) => isOver || setServer(known), (error) => {
      if (isOver) return;
      setServer({ ...EMPTY, problem: error.message });
      if (error.status !== 401) timer = setTimeout(ask, AGAIN_MS); // without a key it is asked again when one is given
    });
    ask();
    return () => {
      isOver = true;
      clearTimeout(timer);
    };
  }, [state, keys]);
  return server;
}

const AGAIN_MS = 3000;
const LIMITS = { kinds: {}, maxFile: 0, maxBody: 0, maxFiles: 0 }; // placeholders by kind, MB, MB, a number
const EMPTY = { fields: [], backends: [], models: [], base: "", defaults: {}, limits: LIMITS, problem: "" };

async function read() {
  const [document, models, info, model] = await Promise.all([
    askJson("openapi.json"), askJson("v1/models"), askJson("get_server_info"), askJson("get_model_info"),
  ]);
  return {
    ...EMPTY, fields: parametersOf(document), backends: backendsOf(document), base: info.served_model_name,
    models: models.data.map((model) => model.id), defaults: { n: 1, ...info.sampling_defaults_resolved },
    limits: {
      kinds: model.media_placeholders, maxFile: info.max_media_mb, maxBody: info.max_body_mb,
      maxFiles: info.max_media_per_request,
    },
  };
}
