// What the playground knows of the server: its parameters, models and defaults; read again whenever it came back, and
// with every other key.

import { askJson } from "../api.js";
import { connection } from "../connection.js";
import { useEffect, useState } from "../dom.js";
import { changed } from "../keys.js";
import { useSignal } from "../signal.js";
import { backendsOf, parametersOf } from "./schema.js";

/** {fields, backends, models, base, defaults, problem}; null until it answered. */
export function useServer() {
  const [server, setServer] = useState(null);
  const state = useSignal(connection);
  const keys = useSignal(changed);
  useEffect(() => {
    if (state !== "up") return;
    read().then(setServer, (error) => setServer({ ...EMPTY, problem: error.message }));
  }, [state, keys]);
  return server;
}

const EMPTY = { fields: [], backends: [], models: [], base: "", defaults: {}, problem: "" };

async function read() {
  const [document, models, info] = await Promise.all([
    askJson("openapi.json"), askJson("v1/models"), askJson("get_server_info"),
  ]);
  return {
    ...EMPTY, fields: parametersOf(document), backends: backendsOf(document), base: info.served_model_name,
    models: models.data.map((model) => model.id), defaults: { n: 1, ...info.sampling_defaults_resolved },
  };
}
