// Light, dark, or the system's choice.

const KEY = "toolscout.theme";
const NEXT = { auto: "light", light: "dark", dark: "auto" };
const TOLD = {
  auto: ["auto", "Colours: system"],
  light: ["sun", "Colours: light"],
  dark: ["moon", "Colours: dark"],
};

const chosen = () => document.documentElement.dataset.theme ?? "auto";

/** Return the icon and the name of the theme. */
export const themeNow = () => TOLD[chosen()];

/** Change to the next theme and keep it. */
export function nextTheme() {
  const next = NEXT[chosen()];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  localStorage.setItem(KEY, next);
}

/** Return colours as a canvas needs them. */
export function colours(...names) {
  const probe = document.body.appendChild(document.createElement("i"));
  const found = names.map((name) => {
    probe.style.color = `var(--${name})`;
    return getComputedStyle(probe).color;
  });
  probe.remove();
  return found;
}
