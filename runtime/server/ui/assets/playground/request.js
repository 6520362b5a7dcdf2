// What the playground asks the server: {path, body}, and the `media` in it. `extras` are what the page itself needs to
// show tokens; the code that is shown to copy has none of them.

import { constraintFields, problemOf } from "./constraint.js";
import { mediaFields, mediaOf } from "./media.js";
import { CHAT_NAMES, jsonOf, valueOf } from "./schema.js";
import { problemOf as problemOfTools, toolFields } from "./tools.js";

/** Throws an Error that says which control holds what cannot be sent. */
export function requestOf(asked, messages) {
  // What is wrong with these is said below their editors.
  if (problemOf(asked.constraint)) throw new Error("The constraint is no JSON.");
  if (asked.mode === "chat" && problemOfTools(asked.tools)) throw new Error("Tools is no JSON list.");
  return asked.mode === "chat" ? chatRequest(asked, messages) : completionRequest(asked);
}

function chatRequest(asked, messages) {
  const named = Object.entries(parameters(asked)).map(([name, value]) => [CHAT_NAMES[name] ?? name, value]);
  const system = asked.system.trim() ? [{ role: "system", content: asked.system }] : [];
  const body = {
    model: asked.model, messages: [...system, ...messages], ...Object.fromEntries(named),
    ...constraintFields(asked.constraint), ...toolFields(asked.tools), ...moreFields(asked), stream: true,
  };
  const extras = {
    logprobs: true, top_logprobs: asked.numTop, return_token_ids: true, return_tokens_as_token_ids: true,
    stream_options: { include_usage: true },
  };
  return { path: "v1/chat/completions", body, extras, media: mediaOf(messages) };
}

function completionRequest(asked) {
  if (asked.prompt === "") throw new Error("The prompt is empty.");
  const params = { ...parameters(asked), ...constraintFields(asked.constraint) };
  const { model, media, kinds } = asked;
  const body = {
    text: asked.prompt, ...mediaFields(media), sampling_params: params, ...adapterOf(asked), ...moreFields(asked),
    stream: true,
  };
  return { path: "generate", model, body, extras: nativeExtras(asked.numTop, params.max_new_tokens), media, kinds };
}

/**
 * The same output up to a token, another token in its place, and what the model writes then. It is asked for by ids: no
 * text is tokenised again. `media`: those whose tokens are in the prompt. Constraints and the number of
 * samples are left out, because both are about a whole output.
 */
export function continuedRequest(asked, promptIds, keptIds, media) {
  const { n, max_new_tokens: most, min_new_tokens: least, ...params } = parameters(asked);
  if (most !== undefined) params.max_new_tokens = Math.max(0, most - keptIds.length);
  if (least !== undefined) params.min_new_tokens = Math.max(0, least - keptIds.length);
  const body = {
    input_ids: [...promptIds, ...keptIds], ...mediaFields(media), sampling_params: params, ...adapterOf(asked),
    stream: true,
  };
  return { path: "generate", body, extras: nativeExtras(asked.numTop, params.max_new_tokens), media };
}

/** An event of /generate repeats all that came before it, so there are at most EVENTS of them. */
const EVENTS = 256;
const DEFAULT_TOKENS = 128;

function nativeExtras(numTop, tokens = DEFAULT_TOKENS) {
  const interval = Math.ceil(tokens / EVENTS);
  return {
    return_logprob: true, top_logprobs_num: numTop, return_text_in_logprobs: true, return_prompt_token_ids: true,
    ...(interval > 1 && { sampling_params: { stream_interval: interval } }),
  };
}

/** A refusal as the page's controls are named. */
export const asOnPage = (message) => message.replaceAll("sampling_params.", "");

/** With the page's extras; what the user set counts. */
export function sent({ body, extras }) {
  const whole = { ...extras, ...body };
  if (body.sampling_params) whole.sampling_params = { ...extras.sampling_params, ...body.sampling_params };
  return whole;
}

function parameters(asked) {
  const given = asked.fields.map((field) => [field.name, valueOf(field, asked.params[field.name])]);
  return Object.fromEntries(given.filter(([, value]) => value !== undefined));
}

const adapterOf = ({ model, base }) => (model === base ? {} : { lora_path: model });

function moreFields({ more }) {
  if (more.trim() === "") return {};
  const fields = jsonOf("Other fields", more);
  const isObject = typeof fields === "object" && fields !== null && !Array.isArray(fields);
  if (!isObject) throw new Error("Other fields must be an object");
  return fields;
}
