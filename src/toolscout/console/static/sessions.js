// Sessions: what each searched, found and called, and what it cost, live.

import { ask } from "./api.js";
import { fill, h, paced } from "./dom.js";
import { clock, plural, short, since, took, tokens, whole } from "./format.js";
import { badge, empty, head, problemCard, skeleton, toolLink } from "./parts.js";
import { address } from "./routes.js";

const KIND = { refusal: "error", call: "ready", search: "info" };

export const sessions = {
  title: "Sessions",
  mount: (root, context) => new Sessions(root, context),
};

class Sessions {
  constructor(root, context) {
    this.context = context;
    this.rows = null;
    this.chosen = "";
    this.follows = true;
    this.summary = h("p", { role: "status" });
    this.list = h("div", {}, skeleton(4, 84));
    this.detail = h("div", {});
    fill(root, head("Sessions", this.summary), h("div", { class: "master" }, this.list, this.detail));
    this.soon = paced(() => this.load(), 200);
    this.load();
  }

  update(params) {
    if (params.session === this.chosen) return;
    this.chosen = params.session ?? "";
    if (this.rows) this.show();
  }

  overview() {
    if (this.rows && !this.rows.length) this.show();
  }

  event(kind) {
    if (kind === "session" || kind === "resync") this.soon();
  }

  async load() {
    try {
      this.rows = await ask("sessions");
      this.show();
    } catch (error) {
      fill(
        this.list,
        problemCard(error, () => this.load()),
      );
    }
  }

  show() {
    const focused = document.activeElement?.dataset?.key;
    fill(
      this.summary,
      this.rows.length
        ? `${plural(this.rows.length, "session")}, the last active first. Updates live.`
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
    );
    if (focused) this.list.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
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
                "See what it searched, found and called, as it happens.",
              ),
            )
          : null,
      );
  }

  nothing() {
    const isConsole = this.context.overview().host === "console";
    return empty(
      "sessions",
      "No sessions yet",
      isConsole
        ? "This console has no gateway. A gateway shows its sessions here:"
        : "Connect a client to the gateway and its session appears here:",
      h("code", {}, isConsole ? "toolscout serve --http" : `${location.origin}/mcp`),
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
          { class: "small soft" },
          [
            plural(row.searches, "search").replace("searchs", "searches"),
            plural(row.calls, "call"),
            `${row.loaded} loaded`,
          ].join(" · "),
        ),
        h("span", { class: "small" }, savedText(row)),
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
    const timeline = h(
      "ol",
      { class: "timeline", tabindex: "0", "aria-label": "What happened, oldest first" },
      one.events.map(eventRow),
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
            h("span", { class: "small soft" }, "began ", since(one.started)),
          ),
          h(
            "dl",
            { class: "stats wide" },
            [
              ["searches", whole(one.searches)],
              ["calls", whole(one.calls)],
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
        h(
          "section",
          { class: "pad stack ruled" },
          h(
            "div",
            { class: "row" },
            h("h3", {}, "What happened"),
            h("label", { class: "inline push" }, box, "Follow"),
          ),
          one.events.length ? timeline : h("p", { class: "small soft" }, "Nothing yet."),
        ),
      ),
    );
    timeline.scrollTop = this.follows ? timeline.scrollHeight : top;
    if (focused) this.detail.querySelector(`[data-key="${CSS.escape(focused)}"]`)?.focus();
  }
}

function savedText(row) {
  return row.tokens_saved >= 0
    ? `${tokens(row.tokens_saved)} saved`
    : `${tokens(-row.tokens_saved)} more than without toolscout`;
}

function eventRow(event) {
  if (event.kind === "load")
    return line(event, [h("span", { class: "event-text soft" }, plural(event.hits, "tool"))], []);
  const facts = [
    event.kind === "search" ? plural(event.hits, "hit") : "",
    event.code && event.code !== "ok" ? event.code.replaceAll("_", " ") : "",
    event.milliseconds ? took(event.milliseconds) : "",
    event.tokens ? tokens(event.tokens) : "",
  ].filter(Boolean);
  const found =
    event.kind === "search" && event.found?.length
      ? h("p", { class: "small soft" }, "found ", event.found.join(", "))
      : null;
  return line(
    event,
    [event.tool ? toolLink({ name: event.tool }) : h("span", { class: "event-text" }, event.text)],
    [found, h("p", { class: "small soft" }, facts.join(" · "))],
  );
}

function line(event, content, below) {
  const kind = event.code && event.code !== "ok" ? "error" : (KIND[event.kind] ?? "");
  return h(
    "li",
    {},
    h("time", { class: "num small soft", datetime: event.time }, clock(event.time)),
    h("div", {}, h("div", { class: "row" }, badge(event.kind, kind), content), below),
  );
}
