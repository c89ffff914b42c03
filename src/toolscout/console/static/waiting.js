// Waiting: calls that a person has to approve first, with what they would do, and the answers.

import { ask } from "./api.js";
import { fill, h, paced } from "./dom.js";
import { plural, since } from "./format.js";
import { badge, empty, head, problemCard, skeleton, toolLink } from "./parts.js";
import { address } from "./routes.js";

const LOOK_MILLISECONDS = 5_000;
const ANSWERS = [
  ["once", "Approve once", "small primary"],
  ["session", "Approve for this session", "small"],
  ["deny", "Deny", "small"],
];
const DONE = { once: "Approved once", session: "Approved for the session", deny: "Denied" };
const EXPLAINED = {
  "approved once": "The model may make this call once. It has to try again.",
  "approved session": "The model may call this tool in this session. It has to try again.",
  denied: "The model is told no if it tries again.",
};
const KINDS = { waiting: "warning", denied: "error" };
const HIDDEN = /[^\P{C}\n]|[\p{Zl}\p{Zp}\u115f\u1160\u3164\uffa0\ufe00-\ufe0f]/gu;
const EXAMPLE = '[gateway.rules.careful]\npermission = "ask"\neffects = ["destructive"]';

export const waiting = {
  title: "Waiting",
  mount: (root, context) => new Waiting(root, context),
};

class Waiting {
  constructor(root, context) {
    this.context = context;
    this.rows = null;
    this.busy = "";
    this.pressed = "";
    this.told = "";
    this.problem = null;
    this.summary = h("p", { role: "status" });
    this.body = h("div", {}, skeleton(3, 120));
    fill(root, head("Waiting calls", this.summary), this.body);
    this.soon = paced(() => this.load(), 200);
    // Somebody may decide on the command line, which tells nobody.
    this.timer = setInterval(() => this.load(), LOOK_MILLISECONDS);
    this.load();
  }

  update() {}

  overview() {
    if (this.rows && !this.rows.length) this.show();
  }

  event(kind) {
    if (kind === "waiting" || kind === "resync") this.soon();
  }

  leave() {
    clearInterval(this.timer);
  }

  async load() {
    if (this.busy) return;
    try {
      this.take(await ask("waiting"));
    } catch (error) {
      this.rows = null;
      fill(
        this.body,
        problemCard(error, () => this.load()),
      );
    }
  }

  take(rows) {
    const isSame = JSON.stringify(rows) === JSON.stringify(this.rows);
    this.rows = rows;
    if (!isSame) this.show();
  }

  show() {
    // A button that is disabled meanwhile loses the focus.
    const focused = this.pressed || document.activeElement?.dataset?.key;
    const open = this.rows.filter((row) => row.state === "waiting").length;
    fill(
      this.summary,
      this.told && `${this.told} `,
      open
        ? `${plural(open, "call")} ${open === 1 ? "waits" : "wait"} for an answer.`
        : this.rows.length
          ? "No call waits for an answer."
          : "",
    );
    fill(
      this.body,
      this.problem && problemCard(this.problem),
      this.rows.length
        ? h(
            "ul",
            { class: "stack" },
            this.rows.map((row) => this.card(row)),
          )
        : h("div", { class: "card" }, this.nothing()),
      h(
        "p",
        { class: "small soft below" },
        "Tools that have changed wait on the page ",
        h("a", { href: address("servers") }, "Servers"),
        ".",
      ),
    );
    if (!focused) return;
    const button = this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`);
    (button ?? this.body.querySelector("button") ?? document.querySelector("#main")).focus();
  }

  nothing() {
    if (this.context.overview().host === "console") {
      return empty(
        "waiting",
        "No calls behind this console",
        "This console has no gateway. A gateway shows the calls that wait for you here:",
        h("code", {}, "toolscout serve --http"),
      );
    }
    return empty(
      "waiting",
      "No call waits for you",
      "A rule can demand that a person agrees to a call. If a client cannot ask its user, the call waits here. Such a rule looks like this:",
      h("pre", { class: "read sample" }, EXAMPLE),
    );
  }

  card(row) {
    return h(
      "li",
      { class: "card pad stack" },
      h(
        "div",
        { class: "row" },
        h("h2", {}, toolLink({ name: row.tool })),
        badge(row.state, KINDS[row.state] ?? "ready"),
        h("span", { class: "small soft push" }, "asked ", since(row.asked)),
      ),
      h(
        "dl",
        { class: "facts" },
        fact("Who asks", row.principal),
        fact("Server", row.server),
        row.rule && fact("Because of rule", row.rule),
        row.by && fact(row.state === "denied" ? "Denied by" : "Approved by", row.by),
        h(
          "div",
          {},
          h("dt", {}, "Arguments"),
          h(
            "dd",
            {},
            h(
              "pre",
              {
                class: "read tall",
                tabindex: "0",
                role: "group",
                "aria-label": `Arguments of ${row.tool}`,
              },
              pretty(row.arguments),
            ),
          ),
        ),
      ),
      EXPLAINED[row.state] && h("p", { class: "small soft" }, EXPLAINED[row.state]),
      h(
        "div",
        { class: "row" },
        ANSWERS.filter(([name]) => isOffered(row.state, name)).map(([name, label, kind]) =>
          h(
            "button",
            {
              type: "button",
              class: kind,
              disabled: Boolean(this.busy),
              "data-key": `${name} ${row.id}`,
              onclick: () => this.answer(row, name),
            },
            label,
            h("span", { class: "sr" }, `: ${row.tool} for ${row.principal}`),
          ),
        ),
      ),
    );
  }

  async answer(row, name) {
    this.busy = row.id;
    this.pressed = `${name} ${row.id}`;
    this.problem = null;
    this.show();
    try {
      this.rows = await ask(`waiting/${row.id}/${name}`, {}, { method: "POST" });
      this.told = `${DONE[name]}: ${row.tool} for ${row.principal}.`;
    } catch (error) {
      this.problem = error;
    }
    this.busy = "";
    this.show();
    this.pressed = "";
    if (this.problem) this.soon();
  }
}

/** Tell whether an answer would change something. */
function isOffered(state, name) {
  return state === "waiting" || (state === "denied" ? name === "once" : name === "deny");
}

function fact(name, value) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, value));
}

/** Return arguments over several lines, with escapes for what cannot be seen; cut ones as they are. */
function pretty(text) {
  const escaped = (char) => `\\u{${char.codePointAt(0).toString(16)}}`;
  try {
    return JSON.stringify(JSON.parse(text), null, 2).replace(HIDDEN, escaped);
  } catch {
    return text;
  }
}
