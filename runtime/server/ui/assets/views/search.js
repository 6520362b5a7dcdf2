// How much of a prompt is cached now: its tokens are looked up, and nothing is computed.

import { askJson } from "../api.js";
import { html, useState } from "../dom.js";
import { count, percent } from "../text_of.js";

export function PrefixSearch({ found, setFound }) {
  const [text, setText] = useState("");
  const [problem, setProblem] = useState("");
  const search = async (event) => {
    event.preventDefault();
    setProblem("");
    try {
      setFound(text ? await askJson("ui/prefix", { body: { text }, key: "admin" }) : null);
    } catch (error) {
      setFound(null);
      setProblem(String(error.message));
    }
  };
  const clear = () => {
    setText("");
    setProblem("");
    setFound(null);
  };
  return html`
    <form class="search" role="search" onSubmit=${search}>
      <label for="prefix-text" class="unseen">A prompt</label>
      <textarea id="prefix-text" rows="2" placeholder="A prompt: how much of it is cached?" value=${text}
        onInput=${(event) => setText(event.target.value)}></textarea>
      <div class="buttons">
        <button type="submit">Find</button>
        ${found || text ? html`<button type="button" class="quiet" onClick=${clear}>Clear</button>` : ""}
        <output>${found ? answerOf(found) : ""}</output>
      </div>
      ${problem && html`<p class="problem">${problem}</p>`}
    </form>`;
}

function answerOf({ num_tokens, cached_tokens, reused_tokens }) {
  const share = percent(num_tokens ? cached_tokens / num_tokens : 0);
  const reused = reused_tokens === cached_tokens ? "" : `; a request would be given ${count(reused_tokens)} of them`;
  return `${count(cached_tokens)} of ${count(num_tokens)} tokens are cached (${share})${reused}`;
}
