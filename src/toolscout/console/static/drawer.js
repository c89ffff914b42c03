// One tool, over whatever page it was opened from.

import { ask } from "./api.js";
import { fill, h, icon } from "./dom.js";
import { percent, plural, tokens } from "./format.js";
import { bar, badge, effectBadge, problemCard, signalBars, skeleton, toolLink } from "./parts.js";
import { address } from "./routes.js";
import { schemaView } from "./schema.js";

export class Drawer {
  /** `left` is called when a person closes it; `mayEdit` tells whether tools can be changed. */
  constructor(left, mayEdit) {
    this.mayEdit = mayEdit;
    this.dialog = h("dialog", { class: "drawer", "aria-labelledby": "drawer-title" });
    this.name = "";
    document.body.append(this.dialog);
    this.dialog.addEventListener("close", () => {
      if (this.name) {
        this.name = "";
        left();
      }
    });
    this.dialog.addEventListener("click", (event) => {
      if (event.target === this.dialog) this.dialog.close();
    });
  }

  /** Show a tool, or nothing for an empty name; `asked` is the search that it was opened from. */
  show(name, asked) {
    if (name === this.name) return;
    this.name = name;
    if (!name) return this.dialog.close();
    fill(
      this.dialog,
      this.head(h("b", {}, name)),
      h("div", { class: "drawer-body" }, skeleton(5, 60)),
    );
    if (!this.dialog.open) this.dialog.showModal();
    this.dialog.scrollTop = 0;
    this.load(name, asked);
  }

  /** Show what the answer of the overview, which may come later, allows. */
  overview() {
    for (const link of this.dialog.querySelectorAll("[data-edit]")) link.hidden = !this.mayEdit();
  }

  async load(name, asked) {
    try {
      const [tool, why] = await Promise.all([
        ask(`tools/${encodeURIComponent(name)}`),
        asked ? ask("why", { q: asked.q, tool: name, encoder: asked.e }).catch(() => null) : null,
      ]);
      if (name === this.name) this.fill(tool, why, asked);
    } catch (error) {
      if (name === this.name)
        fill(
          this.dialog,
          this.head(h("b", {}, name)),
          h("div", { class: "drawer-body" }, problemCard(error)),
        );
    }
  }

  head(title, ...more) {
    const close = h(
      "button",
      {
        type: "button",
        class: "quiet icon push",
        "aria-label": "Close",
        onclick: () => this.dialog.close(),
      },
      icon("close"),
    );
    return h(
      "div",
      { class: "drawer-head" },
      h("div", { class: "stack" }, h("h2", { id: "drawer-title" }, title), more),
      close,
    );
  }

  fill(tool, why, asked) {
    const focused = document.activeElement;
    const name = [h("span", { class: "of" }, tool.server), h("b", {}, tool.leaf)];
    const facts = h(
      "div",
      { class: "row" },
      effectBadge(tool.effect),
      badge(tool.kind, ""),
      h("span", { class: "soft small" }, tokens(tool.tokens)),
      copyButton(tool.name),
      tool.kind === "tool" &&
        h(
          "a",
          {
            class: "small",
            href: address("servers", { tools: tool.server, edit: tool.leaf }),
            hidden: !this.mayEdit(),
            "data-edit": "",
          },
          "Change or switch off",
        ),
    );
    fill(
      this.dialog,
      this.head(h("span", { class: "tool-name" }, name), facts),
      h(
        "div",
        { class: "drawer-body" },
        why && whySection(why, asked.q),
        describedSection(tool),
        findingsSection(tool),
        section("Parameters", schemaView(tool.input_schema ?? {}, "Input schema")),
        tool.output_schema && section("Result", schemaView(tool.output_schema, "Output schema")),
        nearSection(tool),
        namesSection(tool),
      ),
    );
    if (!this.dialog.contains(focused) || !focused.isConnected)
      this.dialog.querySelector("button[aria-label=Close]").focus();
  }
}

const section = (title, ...content) => h("section", {}, h("h3", {}, title), content);

function copyButton(name) {
  const button = h(
    "button",
    {
      type: "button",
      class: "quiet small",
      onclick: async () => {
        await navigator.clipboard.writeText(name);
        fill(button, icon("copy", 15), "Copied");
      },
    },
    icon("copy", 15),
    "Copy name",
  );
  return button;
}

function describedSection(tool) {
  return section(
    "Description",
    h("p", { class: "prose" }, tool.description || "It has no description."),
    h("code", { class: "signature" }, tool.signature),
  );
}

function whySection(why, query) {
  const stand = why.rank
    ? `Number ${why.rank} for “${query}”.`
    : `Not among the hits for “${query}”.`;
  return section(
    "Why",
    h("p", {}, stand, " ", why.confidence && badge(why.confidence)),
    signalBars(why.signals),
    reasons(why.reasons),
  );
}

/** Return reasons as a list. */
export function reasons(listed) {
  return listed.length
    ? h(
        "ul",
        { class: "stack small soft reasons" },
        listed.map((one) => h("li", {}, one)),
      )
    : null;
}

function findingsSection(tool) {
  if (tool.findings === null || !tool.findings?.length) return null;
  return section(
    plural(tool.findings.length, "finding"),
    h(
      "ul",
      { class: "stack" },
      tool.findings.map((one) =>
        h(
          "li",
          { class: "finding" },
          h(
            "div",
            { class: "row" },
            badge(one.severity, one.severity),
            h("code", { class: "soft" }, one.code),
          ),
          h("p", {}, one.message),
          one.remedy && h("p", { class: "soft small" }, one.remedy),
        ),
      ),
    ),
  );
}

function nearSection(tool) {
  if (!tool.near?.length) return null;
  return section(
    "Nearest in meaning",
    h(
      "ul",
      { class: "near" },
      tool.near.map((one) =>
        h(
          "li",
          {},
          toolLink(one),
          h("span", { class: "small soft num" }, percent(one.similarity)),
          bar(one.similarity, "meaning"),
        ),
      ),
    ),
  );
}

function namesSection(tool) {
  const rows = [
    ["Exposed name", tool.name],
    ["Title", tool.title],
    ["Also found as", tool.aliases?.join(", ")],
    ["Tags", tool.tags?.join(", ")],
    ["Hint", tool.hint],
  ].filter(([, value]) => value);
  return section(
    "Names",
    h(
      "dl",
      { class: "facts" },
      rows.map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value))),
    ),
  );
}
