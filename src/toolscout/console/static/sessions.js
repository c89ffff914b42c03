// Sessions: what each searched, found and called, and what it cost, live.

import { ask } from "./api.js";
import { fill, h, paced } from "./dom.js";
import { clock, plural, short, since, took, tokens, whole } from "./format.js";
import { badge, empty, head, problemCard, refusalText, skeleton, toolLink } from "./parts.js";
import { address } from "./routes.js";

const PAGE = 50;
const MOST = 200;
const TRANSPORTS = { http: "HTTP", sse: "HTTP with SSE", stdio: "stdio" };
const PLACES = { elsewhere: "another gateway", stored: "stored" };
const PLACE_TITLES = {
  elsewhere: "Another gateway on the same store, or an earlier run, used it last",
  stored: "The store has it, but no gateway has counted what it did",
};
const KIND = { refusal: "error", call: "ready", search: "info" };

export const sessions = {
  title: "Sessions",
  mount: (root, context) => new Sessions(root, context),
};

class Sessions {
  constructor(root, context) {
    this.context = context;
    this.rows = null;
    this.total = 0;
    this.chosen = "";
    this.follows = true;
    this.onlyRefused = false;
    this.summary = h("p", { role: "status" });
    this.clients = h("section", { class: "stack", hidden: true });
    this.filter = h("div", { class: "row", role: "group", "aria-label": "What to show" });
    this.list = h("div", { class: "stack" }, skeleton(4, 84));
    this.detail = h("div", {});
    fill(
      root,
      head("Sessions", this.summary, this.filter),
      this.clients,
      h("div", { class: "master" }, this.list, this.detail),
    );
    this.soon = paced(() => this.load(), 200);
  }

  update(params) {
    const shows = params.show === "refused" ? "refused" : "";
    const isNew = this.shows !== shows;
    this.shows = shows;
    this.showFilter();
    if (isNew) {
      this.rows = null;
      fill(this.list, skeleton(4, 84));
      fill(this.detail);
      this.load();
    }
    if (!isNew && params.session === this.chosen) return;
    this.chosen = params.session ?? "";
    if (this.rows) this.show();
  }

  overview() {
    this.loadClients();
    if (this.rows) this.show();
  }

  event(kind) {
    if (["session", "call", "clients", "resync"].includes(kind)) this.soon();
  }

  showFilter() {
    const link = (show, label) =>
      h(
        "a",
        {
          class: "button small",
          href: address("sessions", { show }),
          "aria-current": this.shows === show ? "true" : null,
        },
        label,
      );
    fill(this.filter, link("", "Sessions"), link("refused", "Refused calls"));
  }

  async load(more = false) {
    const { shows } = this;
    this.loadClients();
    try {
      if (shows) this.rows = await ask("refusals");
      else await this.loadPage(more);
      if (shows === this.shows) this.show();
    } catch (error) {
      fill(
        this.list,
        problemCard(error, () => this.load()),
      );
    }
  }

  async loadClients() {
    if (this.context.overview().host !== "daemon") return;
    const clients = await ask("clients").catch(() => []);
    this.clients.hidden = false;
    fill(
      this.clients,
      h("h2", {}, `${plural(clients.length, "client")} connected`),
      clients.length
        ? h(
            "div",
            { class: "card scroll", tabindex: "0", role: "region", "aria-label": "Connected clients" },
            h(
              "table",
              {},
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ["Client", "Profile", "Connected", "Requests"].map((name) =>
                    h("th", { scope: "col", class: name === "Requests" ? "num" : null }, name),
                  ),
                ),
              ),
              h(
                "tbody",
                {},
                clients.map((one) =>
                  h(
                    "tr",
                    {},
                    h(
                      "td",
                      {},
                      h(
                        "a",
                        { href: address("sessions", { session: one.session }) },
                        one.name || "a client that has not asked anything",
                      ),
                    ),
                    h("td", {}, one.profile || "none"),
                    h("td", {}, since(one.since)),
                    h("td", { class: "num" }, whole(one.requests)),
                  ),
                ),
              ),
            ),
          )
        : h("p", { class: "soft" }, "No client uses the gateway now. It ends when nobody has used it for a while."),
    );
  }

  async loadPage(more) {
    const count = Math.min(MOST, Math.max(PAGE, this.rows?.length ?? 0));
    const answer = await ask("sessions", {
      offset: more ? this.rows.length : 0,
      limit: more ? PAGE : count,
    });
    // While a person reads on, sessions may move up; each is listed once.
    const known = new Set(more ? this.rows.map((row) => row.id) : []);
    const fresh = answer.sessions.filter((row) => !known.has(row.id));
    this.rows = more ? [...this.rows, ...fresh] : answer.sessions;
    this.total = answer.total;
  }

  show() {
    const focused = document.activeElement?.dataset?.key;
    if (this.shows) this.showRefusals();
    else this.showSessions();
    if (focused) this.list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  showRefusals() {
    fill(
      this.summary,
      this.rows.length
        ? `The last ${plural(this.rows.length, "refused call")} of this gateway, newest first.`
        : "",
    );
    fill(this.detail);
    fill(
      this.list,
      this.rows.length
        ? h(
            "ol",
            { class: "card pad timeline whole", "aria-label": "Refused calls, newest first" },
            this.rows.map((event) => eventRow(event, this.context.terms(), whose(event))),
          )
        : h(
            "div",
            { class: "card" },
            empty(
              "sessions",
              "No refused calls",
              "Since this gateway started, every call has reached its tool.",
            ),
          ),
      this.context.overview().capabilities.audit &&
        h(
          "p",
          { class: "small soft" },
          "Earlier runs and other gateways: ",
          h("a", { href: address("audit", { event: "refusal" }) }, "refused calls in the audit record"),
          ".",
        ),
    );
  }

  showSessions() {
    fill(
      this.summary,
      this.rows.length
        ? `${plural(this.total, "session")}, the last active first. Updates live.`
        : "",
    );
    fill(
      this.list,
      this.rows.length
        ? h(
            "ul",
            { class: "stack" },
            this.rows.map((row) => this.row(row)),
          )
        : h("div", { class: "card" }, this.nothing()),
      this.rows.length < this.total &&
        h(
          "button",
          { type: "button", "data-key": "more", onclick: () => this.load(true) },
          "Show more sessions",
        ),
    );
    if (this.chosen) this.loadOne();
    else
      fill(
        this.detail,
        this.rows.length
          ? h(
              "div",
              { class: "card" },
              empty(
                "sessions",
                "Choose a session",
                "See whose it is, and what it searched, found and called, as it happens.",
              ),
            )
          : null,
      );
  }

  nothing() {
    const { host } = this.context.overview();
    const isConsole = host === "console";
    return empty(
      "sessions",
      "No sessions yet",
      isConsole
        ? "This console has no gateway. A gateway shows its sessions here:"
        : "Connect a client to the gateway and its session appears here:",
      h("code", {}, { console: "toolscout serve --http", daemon: "toolscout init" }[host] ?? `${location.origin}/mcp`),
    );
  }

  row(row) {
    const isChosen = row.id === this.chosen;
    return h(
      "li",
      {},
      h(
        "a",
        {
          class: "card session",
          href: address("sessions", { session: isChosen ? "" : row.id }),
          "aria-current": isChosen ? "true" : null,
          "data-key": row.id,
        },
        h(
          "span",
          { class: "row" },
          h("strong", {}, row.client || "a client"),
          h("span", { class: "small soft push" }, since(row.active)),
        ),
        h(
          "span",
          { class: "row small" },
          whose(row),
          row.known !== "here" && badge(PLACES[row.known], "", PLACE_TITLES[row.known]),
        ),
        row.known !== "stored" && [
          h(
            "span",
            { class: "small soft" },
            [
              plural(row.searches, "search").replace("searchs", "searches"),
              plural(row.calls, "call"),
              row.refusals ? `${whole(row.refusals)} refused` : "",
              `${row.loaded} loaded`,
            ]
              .filter(Boolean)
              .join(" · "),
          ),
          h("span", { class: "small" }, savedText(row)),
        ],
      ),
    );
  }

  async loadOne() {
    const id = this.chosen;
    if (!this.detail.querySelector(`[data-session="${CSS.escape(id)}"]`))
      fill(this.detail, skeleton(3, 90));
    try {
      const one = await ask(`sessions/${encodeURIComponent(id)}`);
      const isSame =
        JSON.stringify(one) === this.shown && this.detail.querySelector("[data-session]");
      this.shown = JSON.stringify(one);
      if (id === this.chosen && !isSame) this.showOne(one);
    } catch (error) {
      if (id === this.chosen)
        fill(
          this.detail,
          problemCard(error, () => this.loadOne()),
        );
    }
  }

  showOne(one) {
    const focused = document.activeElement?.dataset?.key;
    const top = this.detail.querySelector(".timeline")?.scrollTop ?? 0;
    const box = h("input", {
      type: "checkbox",
      "data-key": "follow",
      onchange: () => {
        this.follows = box.checked;
      },
    });
    box.checked = this.follows;
    const refused = h("input", {
      type: "checkbox",
      "data-key": "refused",
      onchange: () => {
        this.onlyRefused = refused.checked;
        this.showOne(one);
      },
    });
    refused.checked = this.onlyRefused;
    const events = one.events.filter((event) => !this.onlyRefused || event.kind === "refusal");
    const timeline = h(
      "ol",
      { class: "timeline", tabindex: "0", "aria-label": "What happened, oldest first" },
      events.map((event) => eventRow(event, this.context.terms())),
    );
    fill(
      this.detail,
      h(
        "div",
        { class: "card", "data-session": one.id },
        h(
          "div",
          { class: "pad stack" },
          h(
            "div",
            { class: "row" },
            h("h2", {}, one.client || "a client"),
            one.started && h("span", { class: "small soft" }, "began ", since(one.started)),
          ),
          h(
            "dl",
            { class: "facts" },
            this.facts(one).map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value))),
          ),
          one.known !== "stored" &&
            h(
              "dl",
              { class: "stats wide" },
              [
                ["searches", whole(one.searches)],
                ["calls", whole(one.calls)],
                ["refused", whole(one.refusals)],
                ["tokens used", short(one.tokens_used)],
                ["tokens saved", short(one.tokens_saved)],
              ].map(([key, value]) => h("div", {}, h("dt", {}, key), h("dd", {}, value))),
            ),
        ),
        h(
          "section",
          { class: "pad stack ruled" },
          h("h3", {}, `Loaded (${one.loaded.length})`),
          one.loaded.length
            ? h(
                "ul",
                { class: "stack loaded" },
                one.loaded.map((tool) =>
                  h(
                    "li",
                    { class: "row" },
                    toolLink(tool),
                    h(
                      "span",
                      { class: "small soft push" },
                      tool.query ? `“${tool.query}” · ` : "",
                      tokens(tool.tokens),
                    ),
                  ),
                ),
              )
            : h(
                "p",
                { class: "small soft" },
                "Nothing yet. A search loads the tools that it finds.",
              ),
        ),
        one.programs.length
          ? h(
              "section",
              { class: "pad stack ruled" },
              h("h3", {}, `Programs (${one.programs.length})`),
              one.programs.map(programCard),
            )
          : null,
        h(
          "section",
          { class: "pad stack ruled" },
          h(
            "div",
            { class: "row" },
            h("h3", {}, "What happened"),
            one.events.length
              ? [
                  h("label", { class: "inline push" }, refused, "Only refused calls"),
                  h("label", { class: "inline" }, box, "Follow"),
                ]
              : null,
          ),
          events.length ? timeline : h("p", { class: "small soft" }, noEvents(one)),
          this.context.overview().capabilities.audit &&
            h(
              "p",
              { class: "small" },
              h("a", { href: address("audit", { session: one.id }) }, "All of it in the audit record"),
            ),
        ),
      ),
    );
    timeline.scrollTop = this.follows ? timeline.scrollHeight : top;
    if (focused) this.detail.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }

  facts(one) {
    return [
      ["Whose", whoseText(one)],
      ["Profile", one.profile || "None: it sees all tools"],
      [
        "Connection",
        (TRANSPORTS[one.transport] ?? "Unknown") +
          (one.shared ? `, shared by all clients ${isAnybody(one) ? "without a token" : `of ${one.principal}`}` : ""),
      ],
      ["Last used", since(one.active)],
      ["Gateway", one.known === "here" ? "This one" : one.gateway || "Unknown"],
      ["Short id", h("code", {}, one.id)],
    ];
  }
}

/** Return whose a session is, in a sentence. */
function whoseText(one) {
  if (!isAnybody(one)) return one.principal;
  return one.transport === "stdio"
    ? "The user of this machine who started the client"
    : "Anybody on this machine: no token is needed";
}

const isAnybody = (row) => row.principal === "anonymous";

/** Return whose a session is, in a few words. */
function whose(row) {
  return h(
    "span",
    { class: "soft" },
    [
      isAnybody(row) && row.transport === "stdio" ? "" : row.principal,
      row.profile && `profile ${row.profile}`,
      TRANSPORTS[row.transport],
    ]
      .filter(Boolean)
      .join(" · "),
  );
}

function noEvents(one) {
  if (one.events.length) return "No call was refused.";
  return one.known === "here"
    ? "Nothing yet."
    : "What happened is known where the session was used. The audit record has it if both share a store.";
}

function savedText(row) {
  return row.tokens_saved >= 0
    ? `${tokens(row.tokens_saved)} saved`
    : `${tokens(-row.tokens_saved)} more than without toolscout`;
}

function eventRow(event, terms, ...more) {
  if (event.kind === "load")
    return line(event, [h("span", { class: "event-text soft" }, plural(event.hits, "tool"))], []);
  const facts = [
    event.kind === "search" ? plural(event.hits, "hit") : "",
    event.kind !== "refusal" && event.code && event.code !== "ok"
      ? event.code.replaceAll("_", " ")
      : "",
    event.milliseconds ? took(event.milliseconds) : "",
    event.tokens ? tokens(event.tokens) : "",
  ].filter(Boolean);
  const found =
    event.kind === "search" && event.found?.length
      ? h("p", { class: "small soft" }, "found ", event.found.join(", "))
      : null;
  return line(
    event,
    [
      event.tool ? toolLink({ name: event.tool }) : h("span", { class: "event-text" }, event.text),
      ...more,
    ],
    [
      found,
      event.kind === "refusal" && refusalText(event, terms),
      h("p", { class: "small soft" }, facts.join(" · ")),
    ],
  );
}

/** Return one program that the model ran, with its calls. */
function programCard(program) {
  const ended = program.code === "ok" ? "ended" : program.code.replaceAll("_", " ");
  return h(
    "details",
    {},
    h(
      "summary",
      { class: "small" },
      clock(program.started),
      ` · ${ended} · ${plural(program.calls.length, "call")} · `,
      took(program.milliseconds),
    ),
    h("pre", { class: "small", tabindex: "0", "aria-label": "Source" }, program.source),
    program.message && h("p", { class: "small soft" }, program.message),
    program.calls.length
      ? h(
          "ol",
          { class: "small" },
          program.calls.map((call) =>
            h("li", {}, `${call.name}: ${call.code.replaceAll("_", " ")}, `, took(call.milliseconds)),
          ),
        )
      : null,
  );
}

function line(event, content, below) {
  const kind = event.code && event.code !== "ok" ? "error" : (KIND[event.kind] ?? "");
  const name = event.kind === "refusal" ? "refused" : event.kind;
  return h(
    "li",
    {},
    h("time", { class: "num small soft", datetime: event.time }, clock(event.time)),
    h("div", {}, h("div", { class: "row" }, badge(name, kind), content), below),
  );
}
