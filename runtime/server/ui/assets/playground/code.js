// The same request as code to copy. Keys are never written into it: they come from the environment. Nor are media:
// they are read from files of their names.

import { root } from "../connection.js";
import { html, useState } from "../dom.js";
import { KINDS, keyOf } from "../keys.js";
import { kindOf, nameOf, partsOf, piecesOf, textOf, urlOf } from "./media.js";
import { CHAT_NAMES } from "./schema.js";

const VARIABLE = "RAMET_API_KEY";
const DEFAULT_TOKENS = 128; // of /generate; OpenAI's completions have another default
const base = root.href.replace(/\/$/, "");
const hasKey = () => KINDS.some((kind) => keyOf(kind) !== "");

// Arguments of the methods of OpenAI's client; what a server knows beside them goes into extra_body.
const ARGUMENTS = new Set([
  "model", "messages", "prompt", "temperature", "top_p", "n", "stop", "max_tokens", "max_completion_tokens", "seed",
  "frequency_penalty", "presence_penalty", "logit_bias", "tools", "tool_choice", "response_format", "stream",
  "parallel_tool_calls", "reasoning_effort",
]);

// Arguments of the language's gen.
const OF_GEN = new Set([
  "max_tokens", "min_tokens", "n", "stop", "stop_token_ids", "stop_regex", "temperature", "top_p", "top_k", "min_p",
  "typical_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias", "seed", "ignore_eos",
  "skip_special_tokens", "spaces_between_special_tokens", "no_stop_trim", "custom_params", "regex", "json_schema",
  "ebnf", "structural_tag", "grammar_backend", "priority", "cache_salt", "extra_key", "custom_logit_processor",
]);

export const WRITERS = { curl, Python: openai, ramet: language };

function curl({ path, body, media }) {
  const key = hasKey() ? ` -H "Authorization: Bearer $${VARIABLE}"` : "";
  const start = `curl -N ${base}/${path} -H 'Content-Type: application/json'${key} -d`;
  if (!media.length) return `${start} '${quoted(JSON.stringify(body, null, 2))}'`;
  // from its input, since an argument may not be as long as a picture
  const { marked, written } = withMarks(body, media);
  const data = JSON.stringify(marked, null, 2).replace(/[\\$`]/g, "\\$&");
  const read = (head, name) => `${head}$(base64 < '${quoted(name)}' | tr -d '\\n')`;
  return `${start} @- <<END\n${written(data, new RegExp(`${MARK}(\\d+)${MARK}`, "gu"), read)}\nEND`;
}

const quoted = (text) => text.replaceAll("'", `'\\''`);

const MARK = "\u{f0000}"; // of a file until what reads it is written: nobody types it

/** {marked, written}: a body with marks in the place of data URIs, and a text with `write(head, name)` in theirs. */
function withMarks(body, media) {
  const indices = new Map(media.map((part, index) => [urlOf(part), index]));
  const marked = JSON.parse(JSON.stringify(body, (_, value) =>
    (indices.has(value) ? `${MARK}${indices.get(value)}${MARK}` : value)));
  const written = (text, pattern, write) => text.replace(pattern, (_, index) => {
    const part = media[index];
    return write(`${urlOf(part).split(",", 1)[0]},`, nameOf(part));
  });
  return { marked, written };
}

function openai(request) {
  const { isChat, fields: whole } = asOpenAI(request);
  const { media } = request;
  if (media.length && !isChat) return "# OpenAI's completions take no files: the other two do.";
  const { marked: fields, written } = media.length ? withMarks(whole, media) : { marked: whole, written: null };
  const own = Object.entries(fields).filter(([name]) => ARGUMENTS.has(name));
  const other = Object.entries(fields).filter(([name]) => !ARGUMENTS.has(name));
  const lines = own.map(([name, value]) => `    ${name}=${python(value)},`);
  if (other.length) lines.push(`    extra_body=${python(Object.fromEntries(other))},`);
  const piece = isChat ? "choice.delta.content" : "choice.text";
  const code = `from openai import OpenAI
${written ? PYTHON_READER : ""}
client = OpenAI(base_url=${python(`${base}/v1`)}, api_key=${hasKey() ? `os.environ["${VARIABLE}"]` : '"none"'})
stream = client.${isChat ? "chat." : ""}completions.create(
${lines.join("\n")}
)
for chunk in stream:
    for choice in chunk.choices:
        print(${piece} or "", end="", flush=True)
print()`;
  const imports = [written && "import base64", hasKey() && "import os", written && "from pathlib import Path"];
  const head = imports.some(Boolean) ? `${imports.filter(Boolean).join("\n")}\n\n` : "";
  const read = (start, name) => `${python(start)} + base64_of(${python(name)})`;
  return head + (written ? written(code, new RegExp(`"${MARK}(\\d+)${MARK}"`, "gu"), read) : code);
}

const PYTHON_READER = `

def base64_of(file):
    return base64.b64encode(Path(file).read_bytes()).decode()

`;

/** /generate under the names of OpenAI's completions. */
function asOpenAI({ path, model, body }) {
  if (path !== "generate") return { isChat: true, fields: body };
  const { text, sampling_params: params, lora_path: adapter, ...rest } = body;
  const named = renamed({ max_new_tokens: DEFAULT_TOKENS, ...params }, CHAT_NAMES);
  return { isChat: false, fields: { model: adapter ?? model, prompt: text, ...named, ...rest } };
}

function language({ path, body, media, kinds }) {
  const isChat = path !== "generate";
  const { lines, fields } = isChat ? chatLines(body) : completionLines(body, media, kinds);
  const left = Object.keys(fields).filter((name) => !OF_GEN.has(name));
  const given = Object.entries(fields).filter(([name]) => OF_GEN.has(name));
  const call = `gen(${['"answer"', ...given.map(([name, value]) => `${name}=${python(value)}`)].join(", ")})`;
  const roles = isChat ? new Set(["assistant", ...lines.map((line) => line.role)]) : [];
  const names = ["Endpoint", "function", "gen", "set_default_backend", ...new Set(media.map(kindOf)), ...roles];
  const steps = lines.map(({ role, pieces }) => (role ? `${role}(${said(pieces)})` : said(pieces)));
  steps.push(isChat ? `assistant(${call})` : call);
  const key = hasKey() ? `, api_key=os.environ["${VARIABLE}"]` : "";
  return `${hasKey() ? "import os\n\n" : ""}from ramet import ${names.sort((a, b) => (a < b ? -1 : 1)).join(", ")}

set_default_backend(Endpoint(${python(base)}${key}))


${left.length ? `# The language has no ${left.join(", ")}.\n` : ""}@function
def program(s):
${steps.map((step) => `    s += ${step}`).join("\n")}


print(program.run()["answer"])`;
}

/** Texts and parts in the language. */
const said = (pieces) =>
  pieces.map((each) => (each.type ? `${kindOf(each)}(${python(nameOf(each))})` : python(each))).join(" + ");

/** Results of tools are left out with the tools. */
function chatLines({ messages, model, stream, ...fields }) {
  const told = messages.filter((message) => message.role !== "tool");
  const piecesIn = (content) => [...partsOf(content), textOf(content) ?? ""].filter((each, place) => each || !place);
  return { lines: told.map(({ role, content }) => ({ role, pieces: piecesIn(content) })), fields };
}

function completionLines({ text, sampling_params: params, stream, ...rest }, media, kinds) {
  const { image_data: images, video_data: films, audio_data: sound, ...fields } = rest;
  return {
    lines: [{ pieces: piecesOf(text, media, kinds) }], fields: { ...renamed(params, CHAT_NAMES), ...fields },
  };
}

function renamed(fields, names) {
  return Object.fromEntries(Object.entries(fields).map(([name, value]) => [names[name] ?? name, value]));
}

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
  const text = problem ? `# ${problem}` : WRITERS[chosen](request());
  return html`
    <div class="code">
      <div class="row">
        ${Object.keys(WRITERS).map((name) => html`
          <label key=${name}>
            <input type="radio" name="code" checked=${name === chosen} onChange=${() => setChosen(name)} /> ${name}
          </label>`)}
        <span class="grow"></span>
        <${Copy} text=${text} />
      </div>
      <pre tabindex="0" aria-label="Code">${text}</pre>
    </div>`;
}

/** Browsers have a clipboard on this machine and over https alone. */
function Copy({ text }) {
  const [copied, setCopied] = useState("");
  if (!navigator.clipboard) return null;
  const copy = () => navigator.clipboard.writeText(text).then(() => setCopied(text));
  return html`<button type="button" class="quiet" onClick=${copy}>${copied === text ? "Copied" : "Copy"}</button>`;
}
