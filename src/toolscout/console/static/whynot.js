// "Why not this tool?": what speaks for a tool and what holds it back, compared with the best hit.

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { percent } from "./format.js";
import { badge, problemCard, signalBars, toolLink } from "./parts.js";
import { reasons } from "./drawer.js";
import { go, withParams } from "./routes.js";

const OFFERED = 8;

export class WhyNot {
  constructor() {
    this.shown = "";
    this.names = h("datalist", { id: "why-names" });
    this.input = h("input", {
      type: "text",
      list: "why-names",
      placeholder: "Name of a tool",
      "aria-label": "Why not this tool?",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.suggest(),
    });
    this.body = h("div", { role: "status" });
    const form = h(
      "form",
      {
        class: "row why-form",
        onsubmit: (event) => {
          event.preventDefault();
          go(withParams({ why: this.input.value.trim() }), { replace: true });
        },
      },
      this.input,
      h("button", {}, "Explain"),
      this.names,
    );
    this.element = h(
      "section",
      { class: "card pad stack why", "aria-labelledby": "why-title" },
      h("h2", { id: "why-title" }, "Why not this tool?"),
      h(
        "p",
        { class: "soft small" },
        "Name the tool that you expected, and see what holds it back.",
      ),
      form,
      this.body,
    );
  }

  set(query, encoder, name) {
    this.element.hidden = !query.trim();
    const asked = JSON.stringify([query, encoder, name]);
    if (asked === this.shown) return;
    this.shown = asked;
    if (document.activeElement !== this.input) this.input.value = name;
    if (!name || !query.trim()) return fill(this.body);
    this.load(asked, { q: query, encoder, tool: name });
  }

  async suggest() {
    const found = await ask("tools", { q: this.input.value, limit: OFFERED }).catch(() => null);
    if (found)
      fill(
        this.names,
        found.tools.map((tool) => h("option", { value: tool.name })),
      );
  }

  async load(asked, params) {
    try {
      const why = await ask("why", params);
      if (asked === this.shown) fill(this.body, this.describe(why));
    } catch (error) {
      if (asked === this.shown) fill(this.body, problemCard(error));
    }
  }

  describe(why) {
    const isBest = why.best?.name === why.tool;
    return h(
      "div",
      { class: "stack" },
      h(
        "div",
        { class: "versus" },
        h(
          "div",
          { class: "stack" },
          h(
            "div",
            { class: "row" },
            toolLink({ name: why.tool }),
            why.rank ? badge(`number ${why.rank}`, "info") : badge("not a hit", "warning"),
            why.score !== null && h("span", { class: "small soft num" }, percent(why.score, 1)),
          ),
          signalBars(why.signals),
        ),
        why.best && !isBest
          ? h(
              "div",
              { class: "stack" },
              h("div", { class: "row" }, toolLink(why.best), badge("best hit", "strong")),
              signalBars(why.best.signals),
            )
          : null,
      ),
      isBest ? h("p", {}, "It is the best hit.") : reasons(why.reasons),
    );
  }
}
