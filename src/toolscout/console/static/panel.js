// One query and its hits. The search page has one panel, or two side by side.

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { percent, plural, took, tokens } from "./format.js";
import { badge, effectBadge, empty, mark, problemCard, signalBars, toolLink } from "./parts.js";
import { address } from "./routes.js";

const LIMIT = 10;
const SURE = {
  exact: "The query names this tool",
  strong: "Very likely the right tool",
  likely: "Possibly the right tool",
  weak: "A guess",
};

export class Panel {
  /** `change(query, encoder)` is called when a person types, `found()` when an answer arrives. */
  constructor({ label, change, found }) {
    this.query = this.encoder = "";
    this.answer = this.asking = this.other = null;
    this.tried = [];
    this.foundAnswer = () => {};
    this.input = h("input", {
      type: "search",
      class: "ask",
      placeholder: label,
      "aria-label": label,
      autocomplete: "off",
      spellcheck: "false",
      enterkeyhint: "search",
      oninput: () => change(this.input.value, this.chosen()),
    });
    this.encoders = h("select", {
      "aria-label": "Encoder",
      onchange: () => change(this.input.value, this.chosen()),
    });
    this.status = h("p", { class: "status soft small", role: "status" });
    this.body = h("div", { class: "fades" });
    this.element = h(
      "section",
      { class: "panel stack", "aria-label": label, onkeydown: (event) => this.move(event) },
      h(
        "div",
        { class: "ask-row" },
        h("div", { class: "ask-box" }, this.input, h("kbd", { "aria-hidden": "true" }, "/")),
        this.encoders,
      ),
      this.status,
      h("div", { class: "results" }, this.body),
    );
    this.showNothing();
    this.foundAnswer = found;
  }

  /** Return the chosen encoder; empty for the first one, which the address leaves out. */
  chosen() {
    return this.encoders.selectedIndex > 0 ? this.encoders.value : "";
  }

  offer(names) {
    if (this.encoders.options.length === names.length && names.length) return;
    fill(
      this.encoders,
      names.map((name) => h("option", { value: name }, name)),
    );
    this.encoders.hidden = names.length < 2;
    this.encoders.value = this.encoder || names[0];
  }

  examples(texts) {
    this.tried = texts;
    if (!this.query) this.showNothing();
  }

  set(query, encoder) {
    if (document.activeElement !== this.input || !this.input.value.trim() !== !query.trim())
      this.input.value = query;
    if (encoder) this.encoders.value = encoder;
    else if (this.encoders.options.length) this.encoders.selectedIndex = 0;
    if (query === this.query && encoder === this.encoder) return;
    [this.query, this.encoder] = [query, encoder];
    this.search();
  }

  focus() {
    this.input.focus();
    this.input.select();
  }

  names() {
    return this.answer ? this.answer.hits.map((hit) => hit.name) : [];
  }

  async search() {
    this.asking?.abort();
    if (!this.query.trim()) return this.showNothing();
    this.asking = new AbortController();
    const { signal } = this.asking;
    this.element.setAttribute("aria-busy", "true");
    try {
      this.answer = await ask(
        "search",
        { q: this.query, limit: LIMIT, encoder: this.encoder },
        { signal },
      );
      this.show();
    } catch (error) {
      if (error.name !== "AbortError") this.fail(error);
    }
    if (!signal.aborted) this.element.removeAttribute("aria-busy");
  }

  fail(error) {
    this.answer = null;
    fill(this.status);
    fill(
      this.body,
      problemCard(error, () => this.search()),
    );
    this.foundAnswer();
  }

  showNothing() {
    this.answer = null;
    this.element.removeAttribute("aria-busy");
    fill(this.status, "Type what you want done; hits appear as you type.");
    const chips = this.tried.length
      ? h(
          "div",
          { class: "row centred" },
          this.tried.map((text) =>
            h("a", { class: "chip", href: address("search", { q: text }) }, text),
          ),
        )
      : null;
    fill(
      this.body,
      h(
        "div",
        { class: "card" },
        empty(
          "search",
          "Ask as an agent would",
          "Plain words work best. Names, server:name and effect:read work too.",
          ...(chips ? [chips] : []),
        ),
      ),
    );
    this.foundAnswer();
  }

  show() {
    const { hits, message, missing } = this.answer;
    fill(this.status, this.describe());
    const notes = [
      ...missing.map(
        (one) =>
          `There is no tool ${one.name}.${one.near.length ? ` Near: ${one.near.join(", ")}.` : ""}`,
      ),
      message,
    ].filter(Boolean);
    this.foundAnswer();
    this.refill(
      this.body,
      notes.map((note) => h("p", { class: "note" }, note)),
      hits.length
        ? h(
            "ol",
            { class: "hits card" },
            hits.map((hit, i) => this.hit(hit, i)),
          )
        : h(
            "div",
            { class: "card" },
            empty(
              "search",
              "No tool fits",
              "Try other words, or ask why the tool that you expected is missing.",
            ),
          ),
      readDetails(this.answer.reply),
    );
  }

  describe() {
    const { hits, total, milliseconds, corrected } = this.answer;
    const read = Object.entries(corrected ?? {}).map(([from, to]) => `, “${from}” read as “${to}”`);
    return `${hits.length} of ${plural(total, "hit")} in ${took(milliseconds)}${read.join("")}`;
  }

  hit(hit, i) {
    const matched = Object.keys(hit.matched ?? {});
    return h(
      "li",
      { class: "hit" },
      h("span", { class: "rank num", "aria-label": `Number ${i + 1}` }, String(i + 1)),
      h(
        "div",
        { class: "hit-body" },
        h(
          "div",
          { class: "hit-head" },
          toolLink(hit, matched),
          h(
            "span",
            { class: "hit-facts" },
            this.place(hit.name, i),
            effectBadge(hit.effect),
            h(
              "span",
              { class: `badge ${hit.confidence}`, title: SURE[hit.confidence] ?? null },
              hit.confidence,
              h("span", { class: "num" }, percent(hit.score)),
            ),
          ),
        ),
        h("p", { class: "sentence" }, mark(hit.sentence, matched)),
        h("code", { class: "signature" }, mark(hit.signature, matched)),
        signalBars(hit.signals),
        hit.asked_before.length > 0 &&
          h(
            "p",
            { class: "small soft" },
            `Asked for before as ${hit.asked_before.map((text) => `\u2018${text}\u2019`).join(", ")}`,
          ),
        h("p", { class: "small soft cost" }, `Its definition costs ${tokens(hit.tokens)}`),
      ),
    );
  }

  /** Return how the rank of a hit differs from the other panel. */
  place(name, i) {
    if (!this.other) return null;
    const there = this.other.names.indexOf(name);
    if (there < 0) return badge(this.other.isFirst ? "only here" : "new here", "warning");
    if (there === i || this.other.isFirst) return null;
    return badge(there > i ? `up ${there - i}` : `down ${i - there}`, there > i ? "ready" : "");
  }

  /** Compare with the hits of the other panel, and show what differs. */
  compared(names, { isFirst = false } = {}) {
    const isSame = JSON.stringify(this.other?.names) === JSON.stringify(names ?? undefined);
    this.other = names ? { names, isFirst } : null;
    const list = this.body.querySelector(".hits");
    if (list && this.answer && !isSame)
      this.refill(
        list,
        this.answer.hits.map((hit, i) => this.hit(hit, i)),
      );
  }

  /** Replace the hits; the focus stays on the same hit, or at the same rank. */
  refill(element, ...children) {
    const chosen = this.links().indexOf(document.activeElement);
    const name = document.activeElement?.dataset.tool;
    fill(element, ...children);
    if (chosen <= 0) return;
    const links = this.links();
    const same = links.find((link) => link.dataset.tool === name);
    (same ?? links[Math.min(chosen, links.length - 1)]).focus({ preventScroll: true });
  }

  /** Return what the arrow keys go through: the query, then its hits. */
  links() {
    return [this.input, ...this.body.querySelectorAll("a[data-tool], a.chip")];
  }

  move(event) {
    if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
    if (event.target === this.encoders) return;
    const links = this.links();
    const at = links.indexOf(event.target);
    const next = links[at + (event.key === "ArrowDown" ? 1 : -1)];
    if (at < 0 || !next) return;
    event.preventDefault();
    next.focus();
    next.closest(".hit")?.scrollIntoView({ block: "nearest" });
  }
}

/** Return what the model reads; shown below the hits when two panels are compared. */
function readDetails(reply) {
  return h(
    "details",
    { class: "panel-read" },
    h("summary", {}, `What the model reads: ${tokens(reply.tokens)}`),
    h(
      "pre",
      {
        class: "read tall",
        tabindex: "0",
        role: "region",
        "aria-label": "The reply, as the model reads it",
      },
      reply.text,
    ),
  );
}
