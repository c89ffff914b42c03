// Search: hits as you type, each with its reasons; two queries side by side; why not this tool.

import { ask } from "./api.js";
import { fill, h } from "./dom.js";
import { percent, plural, short, tokens, whole } from "./format.js";
import { Panel } from "./panel.js";
import { bar, head, skeleton } from "./parts.js";
import { address, go, route, withParams } from "./routes.js";
import { WhyNot } from "./whynot.js";

const EXAMPLES = 5;

export const search = {
  title: "Search",
  mount: (root, context) => new Search(root, context),
};

class Search {
  constructor(root, context) {
    this.context = context;
    this.summary = h("p", {});
    this.compare = h(
      "button",
      { type: "button", "aria-pressed": "false", onclick: () => this.toggle() },
      "Compare",
    );
    this.first = new Panel({
      label: "What should the tool do?",
      change: (q, e) => this.changed({ q, e }),
      found: () => this.found(),
    });
    this.second = null;
    this.panels = h("div", { class: "panels" }, this.first.element);
    this.side = h("aside", { class: "side stack", "aria-label": "What the model reads" });
    this.why = new WhyNot();
    this.columns = h(
      "div",
      { class: "columns" },
      h("div", { class: "stack wide" }, this.panels, this.why.element),
      this.side,
    );
    fill(root, head("Search", this.summary, this.compare), this.columns);
    this.overview(context.overview());
  }

  overview(overview) {
    // The encoders to compare with are known only now.
    this.compare.disabled = overview.tools === null;
    fill(
      this.summary,
      `${overview.tools === null ? "Tools" : plural(overview.tools, "tool")}, ranked as for an agent.`,
    );
    this.first.offer(overview.encoders);
    this.second?.offer(overview.encoders);
    this.showSide();
    if (overview.tools && !this.hasExamples) this.loadExamples(overview.tools);
  }

  update(params) {
    const isDouble = params.compare === "1";
    this.compare.setAttribute("aria-pressed", String(isDouble));
    this.columns.classList.toggle("double", isDouble);
    if (isDouble && !this.second) this.open();
    if (!isDouble && this.second) this.shut();
    this.first.set(params.q ?? "", params.e ?? "");
    this.second?.set(params.q2 ?? params.q ?? "", params.e2 ?? "");
    this.why.set(params.q ?? "", params.e ?? "", params.why ?? "");
    this.showSide();
  }

  open() {
    const offered = this.context.overview().encoders;
    this.second = new Panel({
      label: "Compare with",
      change: (q2, e2) => this.changed({ q2, e2 }),
      found: () => this.found(),
    });
    this.second.offer(offered);
    this.panels.append(this.second.element);
  }

  shut() {
    this.second.element.remove();
    this.second = null;
    this.first.compared(null);
  }

  toggle() {
    const { params } = route();
    const other = this.context
      .overview()
      .encoders.find((name) => name !== (params.e || this.context.overview().encoders[0]));
    go(
      params.compare
        ? withParams({ compare: "", q2: "", e2: "" })
        : withParams({ compare: "1", q2: params.q, e2: params.q ? other : "" }),
      { replace: true },
    );
  }

  changed(params) {
    go(
      address("search", {
        ...route().params,
        ...params,
        why: params.q === undefined || params.q === route().params.q ? route().params.why : "",
      }),
      { replace: true },
    );
  }

  found() {
    this.showSide();
    if (!this.second) return;
    this.second.compared(this.first.names());
    this.first.compared(this.second.names(), { isFirst: true });
  }

  showSide() {
    if (!this.context.overview().tokens) return fill(this.side, skeleton(1, 190));
    const { all_definitions: all, menu } = this.context.overview().tokens;
    const reply = this.first.answer?.reply;
    fill(
      this.side,
      reply && this.first.query
        ? readCard(reply, all, menu)
        : costCard(all, menu, this.context.overview().tools),
    );
  }

  async loadExamples(count) {
    this.hasExamples = true;
    const places = Array.from({ length: EXAMPLES }, (_, i) =>
      Math.floor(((i + 0.5) * count) / EXAMPLES),
    );
    const pages = await Promise.all(
      places.map((offset) => ask("tools", { offset, limit: 1, kind: "tool" }).catch(() => null)),
    );
    this.first.examples([
      ...new Set(
        pages
          .map((page) => page?.tools[0]?.sentence)
          .filter(Boolean)
          .map(asked),
      ),
    ]);
  }

  focus() {
    this.first.focus();
    return true;
  }
}

/** Return a sentence of a tool as somebody might ask for it. */
function asked(sentence) {
  const text = sentence
    .replace(/[.,;:(].*$/, "")
    .split(/\s+/)
    .slice(0, 7)
    .join(" ");
  return text.charAt(0).toLowerCase() + text.slice(1);
}

function costCard(all, menu, count) {
  return h(
    "div",
    { class: "card pad stack" },
    h("h2", {}, "What a session costs, in tokens"),
    costLine("All definitions", all, 1, "s-other"),
    costLine("Start with toolscout", menu, menu / Math.max(all, 1), "accent"),
    h(
      "p",
      { class: "small soft" },
      count
        ? `The model starts with three tools of toolscout and a list of what exists, instead of ${whole(count)} definitions. It reads the definitions that a search finds.`
        : "The catalogue is empty.",
    ),
  );
}

function readCard(reply, all, menu) {
  const cost = menu + reply.tokens;
  const spared =
    all > cost
      ? `${percent(1 - cost / all, 1)} less than all definitions`
      : "more than all definitions: this catalogue is small";
  return h(
    "div",
    { class: "card pad stack" },
    h(
      "div",
      { class: "row" },
      h("h2", {}, "What the model reads"),
      h("span", { class: "badge push" }, tokens(reply.tokens)),
    ),
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
    costLine("All definitions", all, 1, "s-other"),
    costLine("Start and this reply", cost, cost / Math.max(all, 1), "accent"),
    h("p", { class: "small soft" }, spared, "."),
  );
}

function costLine(name, cost, share, kind) {
  return h(
    "div",
    { class: "cost-line" },
    h("span", {}, name),
    h("strong", { class: "num" }, short(cost)),
    bar(share, kind),
  );
}
