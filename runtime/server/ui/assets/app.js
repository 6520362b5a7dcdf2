// The page: its tabs, the banner that says that the server is gone, keys and theme. What a tab shows is in views/.

import { html, render, useEffect, useState } from "./dom.js";
import { trouble, watch } from "./connection.js";
import { Guard } from "./guard.js";
import { KeyButton, KeyDialog } from "./key_dialog.js";
import { useSignal } from "./signal.js";
import { THEMES, setTheme, showTheme, theme } from "./theme.js";
import { ChartsView } from "./views/charts.js";
import { PlaygroundView } from "./views/playground.js";
import { QueueView } from "./views/queue.js";
import { TreeView } from "./views/tree.js";

const TABS = [
  { name: "playground", title: "Playground", View: PlaygroundView, stays: true }, // keeps what was typed
  { name: "tree", title: "Tree", View: TreeView },
  { name: "queue", title: "Queue", View: QueueView },
  { name: "charts", title: "Charts", View: ChartsView },
];

const tabOfHash = () => TABS.find((tab) => `#${tab.name}` === location.hash) ?? TABS[0];

function useTab() {
  const [tab, setTab] = useState(tabOfHash());
  useEffect(() => {
    const follow = () => setTab(tabOfHash());
    window.addEventListener("hashchange", follow);
    return () => window.removeEventListener("hashchange", follow);
  }, []);
  return tab;
}

function Page() {
  const tab = useTab();
  useEffect(() => {
    document.title = `${tab.title} · ramet`;
  }, [tab]);
  return html`
    <${Header} current=${tab} />
    <${Banner} />
    <main>
      ${TABS.filter((each) => each === tab || each.stays).map(({ name, title, View }) => html`
        <section key=${name} id=${`view-${name}`} class="view" aria-label=${title} hidden=${name !== tab.name}>
          <${Guard} instead=${failureOf(title)}><${View} /><//>
        </section>`)}
    </main>
    <${KeyDialog} />`;
}

function Header({ current }) {
  return html`
    <header class="top">
      <span class="brand">ramet</span>
      <nav aria-label="Views">
        ${TABS.map((tab) => html`
          <a key=${tab.name} href=${`#${tab.name}`} aria-current=${tab === current ? "page" : undefined}>
            ${tab.title}</a>`)}
      </nav>
      <span class="grow"></span>
      <${KeyButton} />
      <${ThemeChoice} />
    </header>`;
}

function ThemeChoice() {
  const chosen = useSignal(theme);
  return html`
    <label class="theme"><span class="faint">Theme</span>
      <select value=${chosen} onChange=${(event) => setTheme(event.target.value)}>
        ${THEMES.map((name) => html`<option value=${name} selected=${name === chosen}>${name}</option>`)}
      </select>
    </label>`;
}

function Banner() {
  const text = useSignal(trouble);
  return html`
    <div role="alert" class="banner" hidden=${!text}>
      ${text && `${text} This page goes on by itself when it is back.`}
    </div>`;
}

/** A view that fails says so, and the others go on. */
const failureOf = (title) => (error) =>
  html`<p class="problem">${title} failed: ${String(error.message ?? error)}</p>`;

showTheme();
render(html`<${Page} />`, document.getElementById("page"));
watch();
