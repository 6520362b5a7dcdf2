// Samples: outputs as they grow. One request fills n of them; `redraw` is called after each event.

import { ask } from "../api.js";
import { eventsOf } from "../sse.js";
import { withNames } from "./media.js";
import { asOnPage, sent } from "./request.js";

const DECODER = new TextDecoder();

let numMade = 0;

/** `media`: of its prompt. A token: {id, text, logprob, top: [{id, text, logprob}]}; none where the request asks for no log-probabilities. */
export function newSample(from = {}) {
  return {
    id: ++numMade, text: "", reasoning: "", calls: [], tokens: [], promptIds: [], finish: "", usage: null, error: "", running: true,
    origin: "", head: "", numHead: 0, media: [], ...from,
  };
}

export const isEmpty = ({ text, reasoning, calls, tokens }) => !text && !reasoning && !calls.length && !tokens.length;

/** Fills the samples until all have ended, the signal aborts, or the request fails: then they say so. */
export async function fill(samples, request, signal, redraw) {
  const read = request.path === "generate" ? readNative() : readChat;
  try {
    const reply = await ask(request.path, { body: sent(request), signal });
    for await (const { data } of eventsOf(reply)) {
      if (data === "[DONE]") break;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      read(samples, event);
      redraw();
    }
    for (const sample of samples) if (!sample.finish) sample.error ||= "The stream broke off.";
  } catch (error) {
    for (const sample of samples) if (!sample.finish) end(sample, error, request);
  }
  for (const sample of samples) sample.running = false;
  redraw();
}

function end(sample, error, request) {
  if (error.name === "AbortError") sample.finish = "stopped";
  else if (error instanceof TypeError) sample.error = isEmpty(sample) ? "Not answered." : "The connection broke.";
  else sample.error = withNames(asOnPage(error.message), request);
}

// -- chats ------------------------------------------------------------------------------------------------------------

function readChat(samples, event) {
  if (event.prompt_token_ids) for (const sample of samples) sample.promptIds = event.prompt_token_ids;
  if (event.usage) samples[0].usage = usageOfChat(event.usage);
  for (const choice of event.choices) readChoice(samples[choice.index], choice);
}

function usageOfChat({ prompt_tokens: prompt, prompt_tokens_details: { cached_tokens: cached } }) {
  return { prompt, cached };
}

function readChoice(sample, { delta, logprobs, finish_reason: finish }) {
  sample.text += delta.content ?? "";
  sample.reasoning += delta.reasoning_content ?? "";
  for (const call of delta.tool_calls ?? []) readCall(sample.calls, call);
  for (const place of logprobs?.content ?? []) {
    sample.tokens.push({ ...tokenOfChat(place), top: place.top_logprobs.map(tokenOfChat) });
  }
  if (finish) sample.finish = finish;
}

function readCall(calls, { index, id, function: { name, arguments: piece } }) {
  calls[index] ??= { id, type: "function", function: { name, arguments: "" } };
  calls[index].function.arguments += piece;
}

/** Its name is `token_id:5`. */
function tokenOfChat({ token, logprob, bytes }) {
  return { id: Number(token.split(":")[1]), text: DECODER.decode(new Uint8Array(bytes)), logprob };
}

// -- /generate --------------------------------------------------------------------------------------------------------

/** Each event has the whole output so far; with --incremental-streaming-output it has what is new. */
function readNative() {
  return (samples, { index = 0, text, output_ids: ids, meta_info: meta, prompt_token_ids: promptIds }) => {
    const sample = samples[index];
    const before = meta.completion_tokens - ids.length;
    sample.text = before > 0 ? sample.text + text : sample.head + text;
    const triples = meta.output_token_logprobs ?? [];
    if (triples.length) sample.tokens.length = sample.numHead + before;
    triples.forEach((triple, place) => {
      sample.tokens.push({ ...tokenOf(triple), top: (meta.output_top_logprobs?.[place] ?? []).map(tokenOf) });
    });
    sample.promptIds = sample.numHead ? sample.promptIds : promptIds ?? sample.promptIds;
    sample.usage = { prompt: meta.prompt_tokens, cached: meta.cached_tokens };
    if (meta.finish_reason) readFinish(sample, meta.finish_reason);
  };
}

function readFinish(sample, reason) {
  if (reason.type === "abort") sample.error = reason.message;
  sample.finish = reason.type;
}

const tokenOf = ([logprob, id, text]) => ({ id, text: text ?? "", logprob });

/** What a sample becomes if another token stands at `place`. `head`: its text up to that token, and with it. */
export function branch(sample, place, token, head) {
  const { top } = sample.tokens[place];
  return newSample({
    tokens: [...sample.tokens.slice(0, place), { ...token, top, chosen: true }],
    promptIds: sample.promptIds, media: sample.media, head, numHead: place + 1, text: head, origin: `from token ${place + 1}`,
  });
}

export const idsOf = (sample) => sample.tokens.map((token) => token.id);
