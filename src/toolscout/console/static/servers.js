// Servers: state, calls and log of each, and what may be done with it.

import { ask } from "./api.js";
import { fill, h, paced } from "./dom.js";
import { clock, plural, short, since, took, whole } from "./format.js";
import { badge, empty, head, problemCard, skeleton } from "./parts.js";
import { address, go, route } from "./routes.js";
import { ToolEdits } from "./tooledits.js";

const SHOWN = {
  start: "Start",
  stop: "Stop",
  restart: "Restart",
  login: "Log in",
  on: "Switch on",
  off: "Switch off",
};
const TITLES = {
  stop: "Until somebody starts it, or the gateway restarts",
  on: "Lasting: removes `disabled` from the configuration file",
  off: "Lasting: writes `disabled = true` into the configuration file",
};
const ORDER = ["failed", "needs_login", "starting", "ready"];
const LAST = "off";
const LOG_MILLISECONDS = 3_000;

export const servers = {
  title: "Servers",
  mount: (root, context) => new Servers(root, context),
};

class Servers {
  constructor(root, context) {
    this.context = context;
    this.rows = null;
    this.open = "";
    this.tools = "";
    this.edits = null;
    this.held = new Map();
    this.busy = new Map();
    this.pressed = "";
    this.said = new Map();
    this.problems = new Map();
    this.summary = h("p", { role: "status" });
    this.body = h("div", {}, skeleton(5, 76));
    fill(root, head("Servers", this.summary), this.body);
    this.soon = paced(() => this.load(), 250);
    this.timer = setInterval(() => this.open && this.loadLog(), LOG_MILLISECONDS);
    this.load();
  }

  update(params) {
    const { server = "", tools = "", edit = "" } = params;
    const isSame = server === this.open && tools === this.tools;
    this.open = server;
    this.tools = tools;
    if (!tools) this.edits = null;
    else if (this.edits?.server !== tools) this.edits = new ToolEdits(tools, () => this.soon());
    this.edits?.edit(edit);
    if (this.rows && !isSame) this.show();
  }

  overview() {
    if (this.rows) this.show();
  }

  event(kind) {
    if (["server", "call", "overview", "resync"].includes(kind)) this.soon();
  }

  leave() {
    clearInterval(this.timer);
  }

  async load() {
    try {
      const rows = await ask("servers");
      const isSame = JSON.stringify(rows) === JSON.stringify(this.rows);
      this.rows = rows;
      for (const row of rows) if (this.held.has(row.name)) this.review(row);
      this.edits?.load();
      if (!isSame || this.isStale) this.show();
    } catch (error) {
      fill(
        this.body,
        problemCard(error, () => this.load()),
      );
    }
  }

  show() {
    // To draw the page anew would take the keyboard from somebody who types.
    this.isStale = Boolean(this.edits?.isTyping());
    if (this.isStale) return;
    // A button that is disabled meanwhile loses the focus.
    const focused = this.pressed || document.activeElement?.dataset?.key;
    const count = (state) => this.rows.filter((row) => row.state === state).length;
    fill(
      this.summary,
      this.rows.length
        ? `${count("ready")} of ${plural(this.rows.length, "server")} ready.${count("failed") ? ` ${count("failed")} failed.` : ""}${count("needs_login") ? ` ${count("needs_login")} need a login.` : ""}`
        : "",
    );
    const place = (row) => {
      const at = ORDER.indexOf(row.state);
      return at >= 0 ? at : ORDER.length + (row.state === LAST);
    };
    const ordered = [...this.rows].sort(
      (a, b) => place(a) - place(b) || a.name.localeCompare(b.name),
    );
    fill(
      this.body,
      ordered.length
        ? h(
            "ul",
            { class: "stack" },
            ordered.map((row) => this.card(row)),
          )
        : h("div", { class: "card" }, this.nothing()),
      ordered.length ? this.legend() : null,
    );
    if (focused) this.body.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
    const log = this.body.querySelector("[data-log]");
    if (log) log.scrollTop = log.scrollHeight;
    if (this.open) this.loadLog();
  }

  legend() {
    const states = Object.entries(this.context.terms().states);
    const details = h(
      "details",
      {
        class: "below",
        ontoggle: () => {
          this.explains = details.open;
        },
      },
      h("summary", { "data-key": "legend" }, "What the states mean"),
      h(
        "dl",
        { class: "facts" },
        states.map(([name, text]) =>
          h("div", {}, h("dt", {}, badge(name)), h("dd", { class: "soft" }, text)),
        ),
      ),
    );
    details.open = Boolean(this.explains);
    return details;
  }

  nothing() {
    if (this.context.overview().host === "console") {
      return empty(
        "servers",
        "No servers behind this console",
        "This console has no gateway. A gateway shows its servers here:",
        h("code", {}, "toolscout serve --http"),
      );
    }
    return empty(
      "servers",
      "No servers yet",
      "Add the first one and it appears here:",
      h("code", {}, "toolscout servers add NAME -- COMMAND"),
    );
  }

  card(row) {
    const isOpen = row.name === this.open;
    const { log, edit } = this.context.overview().capabilities;
    return h(
      "li",
      { class: "card server" },
      h(
        "div",
        { class: "server-head" },
        h(
          "div",
          { class: "server-name" },
          h("div", { class: "row" }, h("h2", {}, row.name), badge(row.state)),
          h(
            "p",
            { class: "small soft" },
            row.transport,
            row.since ? [" · ", since(row.since)] : "",
          ),
        ),
        h(
          "dl",
          { class: "stats" },
          stat("tools", whole(row.tools)),
          stat("tokens", short(row.tokens)),
          stat("calls", whole(row.calls)),
          stat("errors", whole(row.errors), row.errors ? "bad" : ""),
          stat("restarts", whole(row.restarts)),
          stat("median", took(row.latency_ms?.p50), "", "Half of the calls were faster"),
          stat("95 %", took(row.latency_ms?.p95), "", "95 of 100 calls were faster"),
        ),
        h(
          "div",
          { class: "row actions" },
          row.held && this.context.overview().capabilities.approve
            ? this.reviewButton(row)
            : null,
          row.actions
            .filter((name) => this.context.overview().capabilities[name])
            .map((name) => this.action(row, name)),
          edit && this.action(row, row.state === "off" ? "on" : "off"),
          h("span", { class: "push" }),
          edit && this.opener(row, "tools", "Tools"),
          log === false || row.state === "off"
            ? null
            : this.opener(row, "server", "Log"),
        ),
      ),
      row.reason &&
        h(
          "p",
          { class: row.state === "failed" ? "server-text bad" : "server-text soft" },
          row.reason.charAt(0).toUpperCase() + row.reason.slice(1),
        ),
      !row.reason &&
        row.state !== "ready" &&
        h("p", { class: "server-text soft" }, this.context.terms().states[row.state] ?? ""),
      row.own_login !== "none" && ownLogin(row),
      this.held.has(row.name) && this.changes(row),
      this.problems.has(row.name) &&
        h("div", { class: "server-text" }, problemCard(this.problems.get(row.name))),
      row.name === this.tools && edit && this.edits.root,
      isOpen &&
        h(
          "div",
          { class: "server-log" },
          h(
            "pre",
            {
              class: "read tall",
              tabindex: "0",
              role: "log",
              "aria-label": `Last lines of ${row.name}`,
              "data-log": row.name,
            },
            this.said.get(row.name) ?? "…",
          ),
        ),
    );
  }

  /** Return the button that opens a part of a server, which the address names as `param`. */
  opener(row, param, label) {
    const isOpen = route().params[param] === row.name;
    const params = { ...route().params, edit: "", [param]: isOpen ? "" : row.name };
    return h(
      "button",
      {
        type: "button",
        class: "quiet small",
        "aria-expanded": String(isOpen),
        "data-key": `${param} ${row.name}`,
        onclick: () => go(address("servers", params), { replace: true }),
      },
      label,
      h("span", { class: "sr" }, ` of ${row.name}`),
    );
  }

  reviewButton(row) {
    const isOpen = this.held.has(row.name);
    return h(
      "button",
      {
        type: "button",
        class: "small primary",
        "aria-expanded": String(isOpen),
        "data-key": `review ${row.name}`,
        onclick: () => {
          if (isOpen) {
            this.held.delete(row.name);
            this.show();
          } else this.review(row);
        },
      },
      `Review ${plural(row.held, "change")}`,
      h("span", { class: "sr" }, ` of ${row.name}`),
    );
  }

  async review(row) {
    try {
      const { held } = await ask(`servers/${encodeURIComponent(row.name)}/approvals`);
      const isSame = JSON.stringify(held) === JSON.stringify(this.held.get(row.name));
      this.held.set(row.name, held);
      if (isSame) return;
    } catch (error) {
      this.problems.set(row.name, error);
    }
    this.show();
  }

  /** Return what waits for approval: nobody finds or calls it before a person decides. */
  changes(row) {
    const waiting = this.held.get(row.name);
    if (!waiting.length) return null;
    return h(
      "ul",
      { class: "server-log stack", "aria-label": `Changes of ${row.name}` },
      waiting.map((one) =>
        h(
          "li",
          { class: "stack" },
          h(
            "div",
            { class: "row" },
            h("code", {}, one.name),
            badge(one.rejected ? "rejected" : one.change, "warning"),
            ["approve", "reject"]
              .filter((name) => name === "approve" || !one.rejected)
              .map((name) => this.decision(row, one, name)),
          ),
          h(
            "pre",
            { class: "read tall", tabindex: "0", role: "region", "aria-label": `What changed in ${one.name}` },
            one.diff.join("\n"),
          ),
        ),
      ),
    );
  }

  decision(row, one, name) {
    return h(
      "button",
      {
        type: "button",
        class: name === "approve" ? "small primary" : "small",
        disabled: this.busy.has(row.name),
        "data-key": `${name} ${one.id}`,
        onclick: () => this.decide(row, one, name),
      },
      name === "approve" ? "Approve" : "Reject",
      h("span", { class: "sr" }, ` ${one.name}`),
    );
  }

  async decide(row, one, name) {
    this.busy.set(row.name, name);
    this.pressed = `${name} ${one.id}`;
    this.problems.delete(row.name);
    this.show();
    try {
      const path = `servers/${encodeURIComponent(row.name)}/${name}`;
      const { held } = await ask(path, { id: one.id }, { method: "POST" });
      this.held.set(row.name, held);
    } catch (error) {
      this.problems.set(row.name, error);
    }
    this.busy.delete(row.name);
    this.show();
    this.pressed = "";
    this.soon();
  }

  action(row, name) {
    const isBusy = this.busy.get(row.name) === name;
    return h(
      "button",
      {
        type: "button",
        class: name === "login" ? "small primary" : "small",
        disabled: this.busy.has(row.name),
        title: TITLES[name] ?? null,
        "data-key": `${name} ${row.name}`,
        onclick: () => this.act(row, name),
      },
      isBusy ? "…" : SHOWN[name],
      h("span", { class: "sr" }, ` ${row.name}`),
    );
  }

  async act(row, name) {
    this.busy.set(row.name, name);
    this.pressed = `${name} ${row.name}`;
    this.problems.delete(row.name);
    this.show();
    try {
      const answer = await ask(
        `servers/${encodeURIComponent(row.name)}/${name}`,
        {},
        { method: "POST" },
      );
      if (name === "login") this.leadTo(answer.url);
      else this.rows = this.rows.map((one) => (one.name === row.name ? answer : one));
    } catch (error) {
      this.problems.set(row.name, error);
    }
    this.busy.delete(row.name);
    this.show();
    this.pressed = "";
    this.soon();
  }

  leadTo(url) {
    if (/^https?:/.test(url)) window.open(url, "_blank", "noopener,noreferrer");
  }

  async loadLog() {
    const name = this.open;
    const place = () => this.body.querySelector(`[data-log="${CSS.escape(name)}"]`);
    if (!place()) return;
    try {
      const { lines } = await ask(`servers/${encodeURIComponent(name)}/log`);
      const text =
        lines.map((line) => `${clock(line.time)}  ${line.text}`).join("\n") ||
        "No lines yet.";
      this.said.set(name, text);
      const shown = place();
      if (!shown || shown.textContent === text) return;
      shown.textContent = text;
      shown.scrollTop = shown.scrollHeight;
    } catch (error) {
      if (place()) place().textContent = `${error.message} ${error.hint}`;
    }
  }
}

function stat(name, value, kind = "", title = "") {
  return h(
    "div",
    { title: title || null },
    h("dt", {}, name),
    h("dd", { class: kind || null }, value),
  );
}

/** Return the way to the page on which a user logs in, for calls in the user's own name. */
function ownLogin(row) {
  const isDone = row.own_login === "logged in";
  return h(
    "div",
    { class: "server-text row" },
    isDone
      ? "Your calls use your own login."
      : "Everybody uses a login of their own here, and you have none yet.",
    h(
      "a",
      {
        class: isDone ? "button small" : "button small primary",
        href: `/login?server=${encodeURIComponent(row.name)}`,
        "data-key": `own ${row.name}`,
      },
      isDone ? "Log in again" : "Log in for your calls",
      h("span", { class: "sr" }, ` to ${row.name}`),
    ),
  );
}
