// Parts of several pages: names, badges, bars, marked words, empty states and problems.

import { h, icon } from "./dom.js";
import { percent, words } from "./format.js";
import { address, withParams } from "./routes.js";

const GROUPS = ["words", "name", "clause", "meaning"];
const EXPLAINED = {
  words: "Words of the query that the tool has",
  name: "How much of the tool's name is in the query",
  clause: "How well one part of the query fits",
  meaning: "How near the meanings are",
  "exact name": "The query is this tool's name",
  "past calls": "What past calls suggest",
};
const EFFECTS = {
  read: "Changes nothing",
  write: "Changes something",
  destructive: "May destroy something",
  unknown: "Its server does not say what a call does",
};
const WORD = /\p{Lu}?\p{Ll}+|\p{Lu}+(?!\p{Ll})|\p{Lo}+|\p{N}+/gu;
const ENDING = /(ings?|ed|es|s|e|ies|y)$/;

/** Return a link to a tool that opens over the page. */
export function toolLink(tool, marked = []) {
  const { server, leaf } = tool.server ? tool : taken(tool.name);
  return h(
    "a",
    { class: "tool-name", href: withParams({ tool: tool.name }), "data-tool": tool.name },
    server && h("span", { class: "of" }, mark(server, marked)),
    h("b", {}, mark(leaf, marked)),
  );
}

/** Return the server and the leaf of an exposed name. */
function taken(name) {
  const at = name.indexOf("__");
  return at > 0
    ? { server: name.slice(0, at), leaf: name.slice(at + 2) }
    : { server: "", leaf: name };
}

export const badge = (text, kind = text, title = "") =>
  h("span", { class: `badge ${kind}`, title: title || null }, words(text));

/** Return what a call of a tool does; reading needs no warning, and gets a calm colour. */
export const effectBadge = (effect) => badge(effect, effect, EFFECTS[effect] ?? "");

/** Return a bar; `share` goes from 0 to 1. */
export function bar(share, kind = "accent") {
  const width = `${(100 * Math.max(0, Math.min(1, share || 0))).toFixed(1)}%`;
  return h(
    "span",
    { class: "bar", "aria-hidden": "true" },
    h("span", { class: kind, style: { width } }),
  );
}

/** Return a bar for every signal. */
export function signalBars(signals) {
  const names = [
    ...GROUPS.filter((name) => name in signals),
    ...Object.keys(signals).filter((name) => !GROUPS.includes(name)),
  ];
  return h(
    "dl",
    { class: "signals" },
    names.map((name) =>
      h(
        "div",
        { title: EXPLAINED[name] ?? null },
        h("dt", {}, name),
        h("dd", {}, percent(signals[name])),
        bar(signals[name], name),
      ),
    ),
  );
}

/** Return a text in pieces, with the words of a query marked. */
export function mark(text, matched) {
  const stems = matched.map((word) => stem(word.toLowerCase())).filter(Boolean);
  if (!stems.length || !text) return [text];
  const pieces = [];
  let end = 0;
  for (const found of text.matchAll(WORD)) {
    if (!fits(found[0].toLowerCase(), stems)) continue;
    pieces.push(text.slice(end, found.index), h("mark", {}, found[0]));
    end = found.index + found[0].length;
  }
  return [...pieces, text.slice(end)].filter((piece) => piece !== "");
}

function stem(word) {
  const cut = word.replace(ENDING, "");
  return cut.length >= 3 ? cut : word;
}

function fits(word, stems) {
  return stems.some(
    (known) =>
      word === known ||
      (known.length >= 3 && word.startsWith(known) && word.length - known.length <= 5) ||
      (/\p{Lo}/u.test(known) && word.includes(known)),
  );
}

/** Return why a call was refused, and what a person can do about it. */
export function refusalText(event, terms) {
  const known = terms.refusals[event.reason || event.outcome];
  const rule = event.rule ? ` The rule is “${event.rule}”.` : "";
  if (!known) return h("p", { class: "small" }, words(event.reason || event.outcome || ""), rule);
  return [
    h("p", { class: "small" }, known.text, rule),
    h(
      "p",
      { class: "small soft" },
      "What you can do: ",
      known.page
        ? h("a", { href: address(known.page, refusalPlace(known.page, event)) }, known.remedy)
        : known.remedy,
    ),
  ];
}

function refusalPlace(page, event) {
  const server = event.server || taken(event.tool || "").server;
  return page === "servers" && server ? { server } : {};
}

/** Return the placeholder for an empty page. */
export function empty(name, title, ...lines) {
  return h(
    "div",
    { class: "empty" },
    icon(name, 34),
    h("h2", {}, title),
    lines.map((line) => (typeof line === "string" ? h("p", {}, line) : line)),
  );
}

/** Return what went wrong and what to do next. */
export function problemCard(error, again = null) {
  return h(
    "div",
    { class: "problem", role: "alert" },
    h("strong", {}, error.message),
    error.hint && h("p", {}, error.hint),
    again && h("button", { type: "button", class: "small", onclick: again }, "Try again"),
  );
}

/** Return grey placeholder lines. */
export function skeleton(count, height) {
  return h(
    "div",
    { class: "stack", "aria-hidden": "true" },
    Array.from({ length: count }, () =>
      h("div", { class: "skeleton", style: { height: `${height}px` } }),
    ),
  );
}

/** Return the head of a page. */
export function head(title, summary, ...tools) {
  return h(
    "div",
    { class: "page-head" },
    h("div", {}, h("h1", {}, title), summary),
    tools.length ? h("div", { class: "row" }, tools) : null,
  );
}
