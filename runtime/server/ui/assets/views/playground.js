// Chat and completion with every parameter, samples side by side, tokens with their alternatives, and the code for it.

import { html, useEffect, useState } from "../dom.js";
import { Composer, EMPTY_DRAFT, messageOf, TurnHeader, Turns } from "../playground/chat.js";
import { Code } from "../playground/code.js";
import { checkMedia, partsOf, textOf } from "../playground/media.js";
import { Prompt } from "../playground/prompt.js";
import { requestOf } from "../playground/request.js";
import { hasFailed, Sample, SHOWN_AS } from "../playground/sample.js";
import { useSamples } from "../playground/samples.js";
import { useServer } from "../playground/server.js";
import { INITIAL, Settings } from "../playground/settings.js";
import { Soon } from "../soon.js";

export function PlaygroundView() {
  const server = useServer();
  const [asked, setAsked] = useState(INITIAL);
  const change = (patch) => setAsked((now) => ({ ...now, ...(typeof patch === "function" ? patch(now) : patch) }));
  useEffect(() => {
    if (server && !server.models.includes(asked.model)) change({ model: server.base });
  }, [server]);
  if (server === null) return html`<${Soon} text="Asking the server …" />`;
  return html`
    ${server.problem && html`<p class="problem" role="alert">${server.problem}</p>`}
    <div class="playground">
      <${Settings} asked=${asked} server=${server} change=${change} />
      <${Talk} limits=${server.limits} change=${change}
        asked=${{ ...asked, fields: server.fields, base: server.base, kinds: server.limits.kinds }} />
    </div>`;
}

function Talk({ asked, limits, change }) {
  const [turns, setTurns] = useState([]); // of the chat, without the samples that are shown
  const [draft, setDraft] = useState(EMPTY_DRAFT); // of the next message
  const [as, setAs] = useState("markdown");
  const [problem, setProblem] = useState("");
  const runs = { chat: useSamples(), completion: useSamples() };
  const run = runs[asked.mode];
  const isChat = asked.mode === "chat";

  useEffect(() => setProblem(""), [asked.mode]);

  useWarning(turns.length > 0);

  const fail = (error) => setProblem(error.message);
  /** Whether it was sent. */
  const start = (said) => {
    try {
      const request = requestOf(asked, said.map((turn) => turn.message));
      checkMedia(request, limits);
      setProblem("");
      if (isChat) setTurns(said);
      run.start(request, countOf(request));
      return true;
    } catch (error) {
      setProblem(`Not sent: ${error.message}`);
      return false;
    }
  };
  /** What a new message follows. It takes the place of one without an answer: some templates refuse two in a row. */
  const answered = () => {
    const sample = run.samples[run.kept];
    if (sample && !hasFailed(sample)) return [...turns, { message: messageOf(sample), sample }];
    return turns.at(-1)?.message.role === "user" ? turns.slice(0, -1) : turns;
  };
  const send = (messages) => start([...answered(), ...messages.map((message) => ({ message }))]);
  const again = () => start(turns);
  const cut = (index) => {
    run.show([]);
    setTurns(turns.slice(0, index));
  };
  const edit = (index) => {
    const { content } = turns[index].message;
    setDraft(({ text, media }) => ({
      text: [textOf(content), text].filter(Boolean).join("\n"), media: [...partsOf(content), ...media],
    }));
    cut(index);
    document.getElementById("composer").focus();
  };
  const goOnBefore = (index, place, token) => {
    const { sample } = turns[index];
    const begun = () => {
      setProblem("");
      setTurns((all) => all.slice(0, index));
    };
    run.goOn(asked, sample, place, token, [sample]).then(begun, fail);
  };
  const goOn = (sample) => (place, token) => run.goOn(asked, sample, place, token).then(() => setProblem(""), fail);

  return html`
    <div class="talk">
      <div class="row toolbar">
        <label class="field"><span>show as</span>
          <select id="shown-as" value=${as} onChange=${(event) => setAs(event.target.value)}>
            ${SHOWN_AS.map((name) => html`<option value=${name}>${name}</option>`)}
          </select></label>
        <span class="grow"></span>
        <button type="button" id="stop" disabled=${!run.running} onClick=${run.stop}>Stop</button>
        ${isChat && html`
          <button type="button" class="quiet" disabled=${run.running || !turns.length} onClick=${again}>Again</button>
          <button type="button" class="quiet" disabled=${run.running} onClick=${() => cut(0)}>New chat</button>`}
      </div>
      ${isChat
        ? html`<${Turns} turns=${turns} as=${as} goOn=${goOnBefore} cut=${cut} edit=${edit} />`
        : html`
          <${Prompt} asked=${asked} limits=${limits} change=${change} run=${() => start([])} running=${run.running} />`}
      ${run.samples.length > 0 && html`
        <div class="answer">
          ${isChat && html`<${TurnHeader} role="assistant" index=${turns.length} cut=${cut} />`}
          <div class="samples" aria-live="polite">
            ${run.samples.map((sample, index) => saysTheSame(run.samples, index) ? null : html`
              <${Sample} key=${index} sample=${sample} as=${as} chosen=${index === run.kept} goOn=${goOn(sample)}
                choose=${isChat && run.samples.length > 1 && !hasFailed(sample) ? () => run.keep(index) : null} />`)}
          </div>
        </div>`}
      ${problem && html`<p class="problem" role="alert">${problem}</p>`}
      ${isChat && html`
        <${Composer} draft=${draft} change=${setDraft} running=${run.running} send=${send} limits=${limits}
          calls=${run.samples[run.kept]?.calls ?? []} />`}
      <details class="codes">
        <summary>Code</summary>
        <${Code} ...${codeOf(asked, isChat ? turns : [])} />
      </details>
    </div>`;
}

/** Whether another sample before it stands for this one: all of a request that fails say the same. */
const saysTheSame = (samples, index) =>
  index > 0 && hasFailed(samples[index]) && samples[index].error === samples[0].error;

/** The browser asks before it leaves the page, which is all that keeps a conversation. */
function useWarning(isNeeded) {
  useEffect(() => {
    if (!isNeeded) return undefined;
    const warn = (event) => event.preventDefault();
    window.addEventListener("beforeunload", warn);
    return () => window.removeEventListener("beforeunload", warn);
  }, [isNeeded]);
}

const MAX_SAMPLES = 128; // as the server

/** How many outputs are shown: of a number that the server refuses one, which says so. */
function countOf({ body }) {
  const n = body.n ?? body.sampling_params?.n ?? 1;
  return Number.isInteger(n) && n >= 1 && n <= MAX_SAMPLES ? n : 1;
}

/** Of the request that was sent last, or would be sent now. */
function codeOf(asked, turns) {
  try {
    const said = turns.length ? turns.map((turn) => turn.message) : [{ role: "user", content: "Hello" }];
    const request = requestOf({ ...asked, prompt: asked.prompt || "Once upon a time" }, said);
    return { request: () => request, problem: "" };
  } catch (error) {
    return { request: null, problem: error.message };
  }
}
