// Audit: who did what, newest first, with filters; and whether the record is complete.

import { ask } from "./api.js";
import { fill, h, paced } from "./dom.js";
import { plural, since, took, whole } from "./format.js";
import { badge, empty, head, problemCard, refusalText, skeleton } from "./parts.js";
import { address, go, route } from "./routes.js";

const CHECK_MILLISECONDS = 1_000;
const EVENTS = {
  call: "Calls",
  refusal: "Refused calls",
  approval: "Answers about waiting calls",
  definition: "Changed definitions",
  search: "Searches",
  describe: "Descriptions",
  program: "Programs",
  login: "Logins",
  token: "Refused tokens",
  server: "Servers that failed",
  reload: "Changes of the configuration",
  action: "What people did in the console",
  removal: "Old entries removed",
  end: "Ends of runs",
};
const TIMES = [
  ["", "Any time"],
  ["1h", "Last hour"],
  ["24h", "Last 24 hours"],
  ["7d", "Last 7 days"],
  ["30d", "Last 30 days"],
];
// The address has the tool that is open over the page as `tool`.
const PARAMS = { tool: "named" };
const TEXTS = ["principal", "session", "server", "tool", "outcome"];
const LABELS = {
  principal: "Who",
  by: "Done by",
  client: "Client",
  session: "Session",
  tool: "Tool",
  server: "Server",
  effect: "Effect",
  options: "Options",
  rule: "Rule",
  outcome: "Outcome",
  reason: "Reason",
  milliseconds: "Milliseconds",
  form: "Form of query",
  hits: "Hits",
  queries: "Queries",
  arguments: "Arguments",
  arguments_digest: "Digest of arguments",
  definition_digest: "Digest of definition",
  token_digest: "Digest of token",
  source: "Came from",
  added: "Added",
  removed: "Removed",
  changed: "Changed",
  more: "Further definitions",
  unnoted: "Refused before, without an entry",
  chains: "Last entries removed",
  chain: "Run",
  number: "Number in the run",
  previous: "Digest of the entry before",
  digest: "Digest of this entry",
};
const GOOD = ["ok", "approved", "approved once", "approved session", "used", "noticed", "allowed"];
const HEARD = ["call", "search", "server", "waiting", "resync"];

export const audit = {
  title: "Audit",
  mount: (root, context) => new Audit(root, context),
};

class Audit {
  constructor(root, context) {
    this.context = context;
    this.entries = null;
    this.answer = null;
    this.check = null;
    this.pages = 0;
    this.open = new Set();
    this.wanted = {};
    this.summary = h("p", {}, "What was done through this gateway, and by whom.");
    this.state = h("div", { role: "status" }, skeleton(1, 52));
    this.body = h("div", { class: "stack" }, skeleton(6, 46));
    this.fields = {
      event: h(
        "select",
        { onchange: () => this.change() },
        h("option", { value: "" }, "Everything"),
        Object.entries(EVENTS).map(([name, label]) => h("option", { value: name }, label)),
      ),
      ...Object.fromEntries(
        TEXTS.map((name) => [
          name,
          h("input", {
            type: "search",
            autocomplete: "off",
            placeholder: name === "tool" ? "such as github__*" : "any",
            onchange: () => this.change(),
          }),
        ]),
      ),
      since: h(
        "select",
        { onchange: () => this.change() },
        TIMES.map(([value, label]) => h("option", { value }, label)),
      ),
    };
    const labels = { event: "What", since: "When", ...LABELS };
    this.form = h(
      "form",
      {
        class: "audit-filters",
        "aria-label": "Filters",
        onsubmit: (event) => {
          event.preventDefault();
          this.change();
        },
      },
      Object.entries(this.fields).map(([name, field]) =>
        h("label", { class: "field" }, labels[name], field),
      ),
      h("button", { class: "sr" }, "Filter"),
    );
    fill(root, head("Audit", this.summary), this.state, this.form, this.body);
    this.soon = paced(() => this.refresh(), 1_000);
  }

  update(params) {
    const wanted = Object.fromEntries(
      Object.keys(this.fields).map((name) => [name, params[PARAMS[name] ?? name] ?? ""]),
    );
    for (const [name, field] of Object.entries(this.fields)) field.value = wanted[name];
    const isSame = JSON.stringify(wanted) === JSON.stringify(this.wanted);
    this.wanted = wanted;
    if (this.entries && isSame) return;
    this.load();
    if (!this.check) this.verify();
  }

  overview(overview) {
    if (overview.host === "console") this.showNothing();
  }

  event(kind) {
    if (HEARD.includes(kind)) this.soon();
  }

  leave() {
    clearTimeout(this.timer);
    this.hasLeft = true;
  }

  focus(isWanted = false) {
    if (isWanted) this.fields.tool.focus();
    return isWanted;
  }

  change() {
    const values = Object.entries(this.fields).map(([name, field]) => [
      PARAMS[name] ?? name,
      field.value.trim(),
    ]);
    go(address("audit", { ...route().params, ...Object.fromEntries(values) }), { replace: true });
  }

  async load() {
    this.asked = this.wanted;
    const { asked } = this;
    try {
      const answer = await ask("audit", asked);
      if (asked !== this.wanted) return;
      this.answer = answer;
      this.entries = answer.entries;
      this.pages = 1;
      this.show();
    } catch (error) {
      fill(
        this.body,
        problemCard(error, () => this.load()),
      );
    }
  }

  /** Show new entries, unless the person is reading older ones. */
  refresh() {
    if (this.pages <= 1 && this.entries && !this.hasLeft) this.load();
  }

  async loadOlder() {
    const { asked } = this;
    try {
      const answer = await ask("audit", { ...asked, before: this.answer.older });
      if (asked !== this.wanted) return;
      const first = answer.entries[0];
      this.answer = answer;
      this.entries = [...this.entries, ...answer.entries];
      this.pages += 1;
      this.show();
      if (first) this.body.querySelector(`[data-key="${CSS.escape(first.digest)}"]`)?.focus();
    } catch (error) {
      this.body.append(problemCard(error));
    }
  }

  async verify(again = false) {
    clearTimeout(this.timer);
    try {
      this.check = await ask("audit/check", again ? { again: 1 } : {});
      if (this.check.state === "checking" && !this.hasLeft)
        this.timer = setTimeout(() => this.verify(), CHECK_MILLISECONDS);
      this.showCheck();
    } catch (error) {
      fill(
        this.state,
        problemCard(error, () => this.verify(true)),
      );
    }
  }

  showCheck() {
    if (this.context.overview().host === "console") return;
    const { check } = this;
    const again = h(
      "button",
      {
        type: "button",
        class: "small push",
        disabled: check.state === "checking",
        onclick: () => {
          this.check = { state: "checking" };
          this.showCheck();
          this.verify(true);
        },
      },
      "Check again",
    );
    if (check.state === "faulty") return fill(this.state, faultyCard(check, again));
    const isDone = check.state === "complete";
    fill(
      this.state,
      h(
        "div",
        { class: "card pad row audit-state" },
        badge(isDone ? "complete" : "checking", isDone ? "ready" : "info"),
        h(
          "p",
          {},
          isDone
            ? [
                check.entries
                  ? `Nobody edited or removed any of ${whole(check.entries)} entries. `
                  : "The record is empty. ",
                checkedText(check),
              ]
            : "Reading the whole record to see whether something was edited or removed.",
        ),
        again,
        isDone && openText(check) && h("p", { class: "small soft whole" }, openText(check)),
      ),
    );
  }

  showNothing() {
    this.entries = [];
    fill(this.state);
    this.form.hidden = true;
    fill(
      this.body,
      h(
        "div",
        { class: "card" },
        empty(
          "audit",
          "No record behind this console",
          "This console has no gateway. A gateway shows here who called what:",
          h("code", {}, "toolscout serve --http"),
        ),
      ),
    );
  }

  show() {
    if (this.context.overview().host === "console") return this.showNothing();
    const focused = document.activeElement?.dataset?.key;
    const { older } = this.answer;
    fill(
      this.body,
      !this.answer.recorded &&
        h(
          "p",
          { class: "note" },
          "Nothing new is recorded, because the configuration says ",
          h("code", {}, "audit = false"),
          " under [gateway].",
        ),
      this.entries.length
        ? h(
            "ol",
            { class: "card audit-list", "aria-label": "Entries, newest first" },
            this.entries.map((entry) => this.entry(entry)),
          )
        : h("div", { class: "card" }, this.nothing()),
      h(
        "div",
        { class: "row" },
        older
          ? h(
              "button",
              { type: "button", "data-key": "older", onclick: () => this.loadOlder() },
              this.entries.length ? "Show older entries" : "Look further back",
            )
          : null,
        h("p", { class: "small soft" }, retentionText(this.answer)),
      ),
    );
    if (focused) this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  nothing() {
    const isFiltered = Object.values(this.wanted).some(Boolean);
    if (this.answer.older)
      return empty("audit", "Nothing among the newest entries", "Older ones may fit. Look further back.");
    return isFiltered
      ? empty("audit", "No entry fits", "Change the filters. `*` matches anything, as in github__*.")
      : empty(
          "audit",
          "No entries yet",
          "The first one appears when a client searches or calls a tool.",
        );
  }

  entry(entry) {
    const details = h(
      "details",
      {
        ontoggle: () => {
          if (details.open) this.open.add(entry.digest);
          else this.open.delete(entry.digest);
        },
      },
      h(
        "summary",
        { "data-key": entry.digest },
        h("time", { class: "num", datetime: entry.time }, moment(entry.time)),
        badge(entry.event ?? "damaged", entry.event ? "info" : "error"),
        h("span", { class: "audit-subject" }, subject(entry)),
        entry.outcome && badge(String(entry.outcome), outcomeKind(entry)),
        h(
          "span",
          { class: "audit-who soft" },
          [who(entry), entry.milliseconds && took(entry.milliseconds)].filter(Boolean).join(" · "),
        ),
      ),
      entry.event === "refusal" &&
        h("div", { class: "audit-why" }, refusalText(entry, this.context.terms())),
      h("dl", { class: "facts" }, facts(entry)),
    );
    details.open = this.open.has(entry.digest);
    return h("li", {}, details);
  }
}

/** Return who did something, and for whom if that is somebody else. */
function who(entry) {
  const { by, principal } = entry;
  return by && principal && by !== principal ? `${by} for ${principal}` : (by ?? principal);
}

function outcomeKind(entry) {
  if (GOOD.includes(entry.outcome)) return "ready";
  return ["failed", "denied", "declined", "rejected"].includes(entry.outcome) ? "error" : "warning";
}

/** Return the date and the time of an entry. */
function moment(time) {
  const at = new Date(time);
  if (Number.isNaN(at.getTime())) return "no time";
  const day = at.toLocaleDateString([], { day: "2-digit", month: "short" });
  const hour = at.toLocaleTimeString([], {
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
  return `${day} ${hour}`;
}

/** Return what an entry is about. */
function subject(entry) {
  if (!entry.event) return "An entry that cannot be read";
  if (entry.event === "search") return `${plural(entry.hits ?? 0, "hit")}`;
  const names = ["added", "removed", "changed"].flatMap((key) => entry[key] ?? []);
  const said = entry.tool ?? entry.server ?? entry.source;
  return String(said ?? (Array.isArray(names) ? names.join(", ") : ""));
}

function facts(entry) {
  const rest = Object.keys(entry).filter((name) => !(name in LABELS));
  const known = ["time", ...Object.keys(LABELS)].filter((name) => name in entry);
  return [...known, ...rest.filter((name) => !["time", "event"].includes(name))].map((name) =>
    h(
      "div",
      {},
      h("dt", {}, name === "time" ? "Time" : (LABELS[name] ?? name)),
      h("dd", { class: /digest|previous|chain|arguments/.test(name) ? "mono" : null }, shown(entry[name])),
    ),
  );
}

function shown(value) {
  if (Array.isArray(value)) return value.join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

function checkedText(check) {
  return ["Checked ", since(check.time), "."];
}

/** Return what the check cannot know. */
function openText(check) {
  const others = check.open_runs - 1; // this gateway runs
  if (others < 1) return "";
  return `${plural(others, "run")} of a gateway ${others === 1 ? "has" : "have"} no end: it still runs or was killed, or somebody removed its last entries.`;
}

function faultyCard(check, again) {
  return h(
    "div",
    { class: "problem" },
    h("strong", {}, "Somebody edited or removed entries, or the store is damaged."),
    h(
      "ul",
      { class: "reasons stack" },
      check.faults.map((text) => h("li", {}, text)),
      check.more_faults ? h("li", {}, `${whole(check.more_faults)} more.`) : null,
    ),
    h("p", { class: "small" }, checkedText(check)),
    again,
  );
}

function retentionText(answer) {
  const kept = [
    answer.with_arguments ? "arguments" : "",
    answer.with_queries ? "the text of searches" : "",
  ].filter(Boolean);
  const texts = kept.length
    ? `Entries contain ${kept.join(" and ")}.`
    : "Entries contain neither arguments nor the text of searches.";
  const file = answer.file ? " They are also written to a file." : "";
  return `Entries are kept for ${plural(answer.days, "day")}. ${texts}${file}`;
}
