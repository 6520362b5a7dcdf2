// Light and dark: as the system says, until the user chooses.

import { signal } from "./signal.js";

export const THEMES = ["system", "light", "dark"];
const PLACE = "ramet.theme";

export const theme = signal(THEMES.includes(localStorage.getItem(PLACE)) ? localStorage.getItem(PLACE) : "system");

export function setTheme(name) {
  localStorage.setItem(PLACE, name);
  theme.set(name);
}

/** The stylesheet reads it from the root element. */
export function showTheme() {
  document.documentElement.dataset.theme = theme.get();
}

theme.listen(showTheme);
