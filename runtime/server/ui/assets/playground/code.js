// The same request as code to copy. Keys are never written into it: they come from the environment.

import { root } from "../connection.js";
import { html, useState } from "../dom.js";
import { KINDS, keyOf } from "../keys.js";
import { CHAT_NAMES } from "./schema.js";

const VARIABLE = "RAMET_API_KEY";
const base = root.href.replace(/\/$/, "");
const hasKey = () => KINDS.some((kind) => keyOf(kind) !== "");

// Arguments of the methods of OpenAI's client; what a server knows beside them goes into extra_body.
const ARGUMENTS = new Set([
  "model", "messages", "prompt", "temperature", "top_p", "n", "stop", "max_tokens", "max_completion_tokens", "seed",
  "frequency_penalty", "presence_penalty", "logit_bias", "tools", "tool_choice", "response_format", "stream",
  "parallel_tool_calls", "reasoning_effort",
]);

export const WRITERS = { curl, Python: openai, ramet: language };

function curl({ path, body }) {
  const key = hasKey() ? ` -H "Authorization: Bearer $${VARIABLE}"` : "";
  const data = JSON.stringify(body, null, 2).replaceAll("'", `'\\''`);
  return `curl -N ${base}/${path} -H 'Content-Type: application/json'${key} -d '${data}'`;
}

function openai(request) {
  const { isChat, fields } = asOpenAI(request);
  const own = Object.entries(fields).filter(([name]) => ARGUMENTS.has(name));
  const other = Object.entries(fields).filter(([name]) => !ARGUMENTS.has(name));
  const lines = own.map(([name, value]) => `    ${name}=${python(value)},`);
  if (other.length) lines.push(`    extra_body=${python(Object.fromEntries(other))},`);
  const piece = isChat ? "choice.delta.content" : "choice.text";
  return `${hasKey() ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${python(`${base}/v1`)}, api_key=${hasKey() ? `os.environ["${VARIABLE}"]` : '"none"'})
stream = client.${isChat ? "chat." : ""}completions.create(
${lines.join("\n")}
)
for chunk in stream:
    for choice in chunk.choices:
        print(${piece} or "", end="", flush=True)
print()`;
}

/** /generate under the names of OpenAI's completions. */
function asOpenAI({ path, body }) {
  if (path !== "generate") return { isChat: true, fields: body };
  const { text, sampling_params: params, lora_path: adapter, ...rest } = body;
  const named = Object.entries({ max_new_tokens: 128, ...params }).map(([name, value]) => [CHAT_NAMES[name] ?? name, value]);
  return { isChat: false, fields: { model: adapter ?? "default", prompt: text, ...Object.fromEntries(named), ...rest } };
}

function language({ path, body }) {
  const isChat = path !== "generate";
  const { lines, params, left } = isChat ? chatLines(body) : completionLines(body);
  const call = `gen(${['"answer"', ...Object.entries(params).map(([name, value]) => `${name}=${python(value)}`)].join(", ")})`;
  const roles = isChat ? [...new Set(["assistant", ...lines.map((line) => line.role)])].filter((role) => role !== "tool") : [];
  const names = ["Endpoint", "function", "gen", "set_default_backend", ...roles].sort((a, b) => (a < b ? -1 : 1));
  const steps = lines.map(({ role, content }) => `    s += ${role ? `${role}(${python(content)})` : python(content)}`);
  steps.push(`    s += ${isChat ? `assistant(${call})` : call}`);
  const key = hasKey() ? `, api_key=os.environ["${VARIABLE}"]` : "";
  const note = left.length ? `# The language has no ${left.join(", ")}.\n` : "";
  return `${hasKey() ? "import os\n\n" : ""}from ramet import ${names.join(", ")}

set_default_backend(Endpoint(${python(base)}${key}))


${note}@function
def program(s):
${steps.join("\n")}


print(program.run()["answer"])`;
}

const OURS = Object.fromEntries(Object.entries(CHAT_NAMES).map(([ours, theirs]) => [theirs, ours]));
const NOT_OF_GEN = ["stream_interval", "tools", "tool_choice"];

function chatLines({ messages, model, stream, ...rest }) {
  const lines = messages.filter((message) => message.role !== "tool").map(({ role, content }) => ({ role, content: content ?? "" }));
  return { lines, ...forGen(rest) };
}

function completionLines({ text, sampling_params: params, stream, ...rest }) {
  return { lines: [{ content: text }], ...forGen({ ...params, ...rest }) };
}

function forGen(fields) {
  const entries = Object.entries(fields).map(([name, value]) => [name === "seed" ? "sampling_seed" : OURS[name] ?? name, value]);
  const params = entries.filter(([name]) => !NOT_OF_GEN.includes(name)).map(([name, value]) => [NAMES_OF_GEN[name] ?? name, value]);
  return { params: Object.fromEntries(params), left: entries.map(([name]) => name).filter((name) => NOT_OF_GEN.includes(name)) };
}

const NAMES_OF_GEN = { sampling_seed: "seed", max_new_tokens: "max_tokens", min_new_tokens: "min_tokens" };

/** A JSON value as Python writes it. */
export function python(value) {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value === "string") return JSON.stringify(value); // a text of JSON is one of Python
  if (Array.isArray(value)) return `[${value.map(python).join(", ")}]`;
  if (typeof value === "object") {
    return `{${Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${python(item)}`).join(", ")}}`;
  }
  return String(value);
}

export function Code({ request, problem }) {
  const [chosen, setChosen] = useState("curl");
  const [copied, setCopied] = useState(false);
  const text = problem ? `# ${problem}` : WRITERS[chosen](request());
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return html`
    <div class="code">
      <div class="row">
        ${Object.keys(WRITERS).map((name) => html`
          <label key=${name}><input type="radio" name="code" checked=${name === chosen} onChange=${() => setChosen(name)} /> ${name}</label>`)}
        <span class="grow"></span>
        ${navigator.clipboard && html`<button type="button" class="quiet" onClick=${copy}>${copied ? "Copied" : "Copy"}</button>`}
      </div>
      <pre tabindex="0" aria-label="Code">${text}</pre>
    </div>`;
}
