// Keys: one letter does one thing, `g` and a letter go to a page. Can be switched off.

import { showKeys } from "./dialogs.js";
import { address, go } from "./routes.js";

const KEY = "toolscout.keys";
const WAIT_MILLISECONDS = 1_200;
const PLACES = {
  s: "search",
  c: "catalogue",
  v: "servers",
  e: "sessions",
  w: "waiting",
  u: "audit",
  a: "savings",
  m: "map",
};

/** What each key does, for the list of keys. */
export const KEYS = [
  [["/"], "Search, or filter this page"],
  [["↑", "↓"], "Move through results, tools, or the chart"],
  [["Enter"], "Open the selected item"],
  [["Esc"], "Close, or leave a field"],
  [["g", "s"], "Search"],
  [["g", "c"], "Catalogue"],
  [["g", "v"], "Servers"],
  [["g", "e"], "Sessions"],
  [["g", "w"], "Waiting"],
  [["g", "u"], "Audit"],
  [["g", "a"], "Savings"],
  [["g", "m"], "Map"],
  [["+", "−", "0"], "Zoom the map, and show all of it"],
  [["t"], "Colours: light, dark or system"],
  [["?"], "Show these keys"],
];

export const areOn = () => localStorage.getItem(KEY) !== "off";
export const switchKeys = (isOn) => localStorage.setItem(KEY, isOn ? "on" : "off");

/** Listen to keys; `page` gives the page that is shown, `theme` changes the colours. */
export function listenToKeys({ page, theme }) {
  let goes = 0;
  addEventListener("keydown", (event) => {
    if (event.key === "Escape" && isField(event.target)) return event.target.blur();
    if (!isFree(event)) return;
    if (performance.now() < goes && event.key in PLACES) {
      goes = 0;
      event.preventDefault();
      return go(address(PLACES[event.key]));
    }
    goes = event.key === "g" ? performance.now() + WAIT_MILLISECONDS : 0;
    const work = { "/": () => toSearch(page()), "?": showKeys, t: theme }[event.key];
    if (work) {
      event.preventDefault();
      work();
    }
  });
}

function isField(element) {
  return element.matches?.("input, textarea, select") ?? false;
}

function isFree(event) {
  const isPlain = !event.ctrlKey && !event.metaKey && !event.altKey;
  return isPlain && areOn() && !isField(event.target) && !document.querySelector("dialog[open]");
}

function toSearch(page) {
  if (!page?.focus?.(true)) go(address("search"));
}
